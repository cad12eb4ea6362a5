/* SPDX-License-Identifier: Apache-2.0 */
/* resolve_saved.c - stores the native addresses that a resolver has named for another conversion of the trace. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "resolve_inside.h"

/* The form in which resolver_save() writes an address; the frames of that address follow it. */
struct saved {
    struct address key;
    uint32_t n, pad;
};
struct saved_frame {
    uint32_t frame;
    uint16_t eval, owner;
};

int resolver_has_base(const struct resolver *rs) {
    return rs->nbase && rs->addresses.n - rs->nbase <= rs->nbase / 4;
}

void resolver_saved(struct resolver *rs) {
    rs->nbase = rs->addresses.n;
}

void *resolver_save(const struct resolver *rs, int all, size_t *n) {
    uint8_t *out = calloc(rs->addresses.n * sizeof(struct saved) +
                              rs->nknown * sizeof(struct saved_frame) + 1,
                          1),
            *p = out;

    for (uint32_t id = all ? 1 : rs->nbase + 1; p && id <= rs->addresses.n; id++) {
        const struct native_at *a = &rs->at[id - 1];
        struct saved s = {.n = a->n};
        memcpy(&s.key, keys_key(&rs->addresses, id, NULL), sizeof s.key);
        memcpy(p, &s, sizeof s);
        p += sizeof s;
        for (uint32_t i = 0; i < a->n; i++, p += sizeof(struct saved_frame)) {
            const struct merge_native *m = &rs->known[a->first + i];
            struct saved_frame f = {m->frame, (uint16_t)m->eval, (uint16_t)m->owner};
            memcpy(p, &f, sizeof f);
        }
    }
    *n = p ? (size_t)(p - out) : 0;
    return out;
}

int resolver_restore(struct resolver *rs, const void *saved, size_t n, size_t base) {
    const uint8_t *p = saved, *end = p + n, *own = p + base;
    struct saved s;
    int is_new;
    size_t most = n / sizeof s < RESOLVER_NATIVE ? n / sizeof s : RESOLVER_NATIVE;

    if (keys_reserve(&rs->addresses, most) != 0 ||
        resolver_reserve(&rs->at, &rs->at_cap, most, sizeof *rs->at) != 0 ||
        resolver_reserve(&rs->known, &rs->known_cap, n / sizeof(struct saved_frame),
                         sizeof *rs->known) != 0)
        return -ENOMEM;
    uint32_t frames = rs->cs->no_frames ? rs->cs->nfunctions : rs->cs->nframes;
    while ((size_t)(end - p) >= sizeof s) {
        if (p == own)
            rs->nbase = rs->addresses.n;
        memcpy(&s, p, sizeof s);
        p += sizeof s;
        if (s.n > (size_t)(end - p) / sizeof(struct saved_frame) ||
            rs->addresses.n >= RESOLVER_NATIVE)
            return 0;
        uint32_t id = keys_put(&rs->addresses, &s.key, sizeof s.key, &is_new);
        if (!id)
            return -ENOMEM;
        rs->at[id - 1] = (struct native_at){(uint32_t)rs->nknown, s.n};
        for (uint32_t i = 0; i < s.n; i++, p += sizeof(struct saved_frame)) {
            struct saved_frame f;
            memcpy(&f, p, sizeof f);
            int known = f.frame && f.frame <= frames;
            rs->known[rs->nknown++] =
                (struct merge_native){known ? f.frame : 1, f.eval != 0, (enum merge_owner)f.owner};
        }
    }
    if (p == own)
        rs->nbase = rs->addresses.n;
    return 0;
}
