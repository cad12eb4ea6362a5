/* SPDX-License-Identifier: Apache-2.0 */
#include "arrow_stacks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void arrow_stacks_init(struct arrow_stacks *s) {
    memset(s, 0, sizeof *s);
    callsites_init(&s->sites);
}

void arrow_stacks_free(struct arrow_stacks *s) {
    callsites_free(&s->sites);
    free(s->frames);
    free(s->ids);
    memset(s, 0, sizeof *s);
}

/* Makes *p hold at least `want` entries of `size` bytes; new ones are zero. */
static int make_space(void *p, size_t *have, size_t want, size_t size) {
    size_t cap = *have * 2 > want ? *have * 2 : want + 256;

    if (want <= *have)
        return 0;
    uint8_t *more = realloc(*(void **)p, cap * size);
    if (!more)
        return -1;
    memset(more + *have * size, 0, (cap - *have) * size);
    *(void **)p = more;
    *have = cap;
    return 0;
}

static uint64_t mix(uint64_t h, uint64_t w) {
    h = (h ^ w) * 0xff51afd7ed558ccdu;
    return (h ^ h >> 32) * 0xc4ceb9fe1a85ec53u;
}

static uint64_t mix_text(uint64_t h, const char *text) {
    size_t n = strlen(text);
    uint64_t w;

    h = mix(h, n);
    for (; n; text += n < 8 ? n : 8, n -= n < 8 ? n : 8) {
        w = 0;
        memcpy(&w, text, n < 8 ? n : 8);
        h = mix(h, w);
    }
    return h;
}

static int name(struct arrow_names *d, const char *text, int32_t *out) {
    *out = -1;
    return d && *text ? arrow_names_put(d, text, strlen(text), out) : 0;
}

static int make_frame(struct arrow_stacks *s, uint32_t id, struct arrow_frame *out) {
    struct callsites_frame r = callsites_frame_of(&s->sites, id);
    struct callsites_function f = callsites_function_of(&s->sites, r.function);
    const char *file = *r.file ? r.file : *f.file ? f.file : f.module;
    char *text = NULL;
    int err = 0;

    out->line = (int64_t)r.line;
    out->native = f.type == CALLSITE_NATIVE;
    out->hash = mix(mix_text(mix_text(mix(0, f.type), f.name), file), r.line ^ f.firstline << 32);
    if (s->text) {
        int n = r.line  ? asprintf(&text, "%s (%s:%llu)", f.name, file, (unsigned long long)r.line)
                : *file ? asprintf(&text, "%s (%s)", f.name, file)
                        : asprintf(&text, "%s", f.name);
        err = n < 0 ? -1 : name(s->text, text, &out->text);
        if (n >= 0)
            free(text);
    }
    if (!err)
        err = name(s->func, f.name, &out->func);
    if (!err)
        err = name(s->file, file, &out->file);
    out->known = !err;
    return err;
}

const struct arrow_frame *arrow_stacks_frame(struct arrow_stacks *s, uint32_t frame) {
    if (make_space(&s->frames, &s->nframes, (size_t)frame + 1, sizeof *s->frames) != 0)
        return NULL;
    struct arrow_frame *f = &s->frames[frame];
    if (frame == 0)
        f->known = 1;
    return f->known || make_frame(s, frame, f) == 0 ? f : NULL;
}

int64_t arrow_stacks_id(struct arrow_stacks *s, uint32_t site) {
    uint32_t parent;

    if (make_space(&s->ids, &s->nids, (size_t)site + 1, sizeof *s->ids) != 0)
        return 0;
    for (uint32_t at = s->made + 1; at <= site; at++) { /* parents have lower numbers */
        const struct arrow_frame *f =
            arrow_stacks_frame(s, callsites_site_of(&s->sites, at, &parent));
        if (!f)
            return 0;
        s->ids[at] = mix(parent ? s->ids[parent] : 1, f->hash) >> 1 | 1;
        s->made = at;
    }
    return (int64_t)s->ids[site];
}
