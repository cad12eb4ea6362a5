/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "converter/dict.h"
#include "fleet.h"

struct recorded recorded;

/* Makes room for one more element of an array that doubles its size. */
static void *more(void *p, size_t n, size_t size) {
    if (n & (n - 1) || (n && n < 64))
        return p;
    void *q = realloc(p, (n ? 2 * n : 64) * size);

    return q ? q : (free(p), NULL);
}

static char *text(const struct dict *d, uint64_t id) {
    size_t n;
    const char *p = dict_string(d, id, &n);

    return strndup(p, n);
}

static uint64_t *list(struct trace_value v, size_t *n) {
    uint64_t *p = malloc((v.n + 1) * sizeof *p), prev = 0;

    *n = 0;
    while (p && trace_list_next(&v, &prev, &p[*n]))
        ++*n;
    return p;
}

/* Returns what the main thread was doing, judged by the functions on its stack. */
static enum phase phase_of(const struct recorded_stack *s) {
    static const struct {
        const char *name;
        enum phase phase;
    } known[] = {
        {"all_reduce", COMM},           {"_next_data", DATA_WAIT}, {"__getitem__", DATA_WAIT},
        {"backward", BACKWARD},         {"step", OPTIMIZER},       {"AdamW.step", OPTIMIZER},
        {"clip_grad_norm_", OPTIMIZER}, {"zero_grad", OPTIMIZER},  {"forward", FORWARD},
        {"_call_impl", FORWARD}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        for (size_t k = 0; k < s->npython; k++) {
            const char *name = s->python[k] ? recorded.frame[s->python[k] - 1].name : "";
            const char *point = strrchr(name, '.');
            if (strcmp(point ? point + 1 : name, known[i].name) == 0)
                return known[i].phase;
        }
    return PHASES;
}

static int take_dict(const struct trace_value *v, int type, const struct dict *d) {
    struct recorded *r = &recorded;

    if (type == TRACE_frame) {
        r->frame = more(r->frame, r->nframes, sizeof *r->frame);
        if (!r->frame)
            return -ENOMEM;
        r->frame[r->nframes++] =
            (struct recorded_frame){text(d, v[TRACE_frame_name].u), text(d, v[TRACE_frame_file].u),
                                    v[TRACE_frame_firstline].u, v[TRACE_frame_line].u};
    } else if (type == TRACE_stack) {
        r->stack = more(r->stack, r->nstacks, sizeof *r->stack);
        if (!r->stack)
            return -ENOMEM;
        struct recorded_stack *s = &r->stack[r->nstacks++];
        s->flags = v[TRACE_stack_flags].u;
        s->python = list(v[TRACE_stack_python], &s->npython);
        s->native = list(v[TRACE_stack_native], &s->nnative);
        if (!s->python || !s->native)
            return -ENOMEM;
        for (size_t i = 0; i < s->npython; i++)
            if (s->python[i] > r->nframes)
                return -EBADMSG;
    } else if (type == TRACE_module) {
        r->module = more(r->module, r->nmodules, sizeof *r->module);
        if (!r->module)
            return -ENOMEM;
        struct recorded_module *m = &r->module[r->nmodules++];
        *m = (struct recorded_module){.path = text(d, v[TRACE_module_path].u),
                                      .start = v[TRACE_module_start].u,
                                      .end = v[TRACE_module_end].u,
                                      .bias = v[TRACE_module_bias].u};
        m->build_id_len =
            v[TRACE_module_build_id].n < sizeof m->build_id ? v[TRACE_module_build_id].n : 0;
        memcpy(m->build_id, v[TRACE_module_build_id].p, m->build_id_len);
    }
    return 0;
}

static int take(const struct trace_value *v, int type, const struct dict *d) {
    struct recorded *r = &recorded;

    if (type == TRACE_process && v[TRACE_process_eval_end].u) {
        r->eval_start = v[TRACE_process_eval_start].u;
        r->eval_end = v[TRACE_process_eval_end].u;
        r->cold_start = v[TRACE_process_cold_start].u;
        r->cold_end = v[TRACE_process_cold_end].u;
        return 0;
    }
    if (type != TRACE_sample)
        return take_dict(v, type, d);
    uint64_t stack = v[TRACE_sample_stack].u;
    if (stack == 0 || stack > r->nstacks || v[TRACE_sample_count].u == 0)
        return 0;
    enum phase p = phase_of(&r->stack[stack - 1]);
    if (p == PHASES)
        return 0;
    r->sample[p] = more(r->sample[p], r->nsamples[p], sizeof **r->sample);
    if (!r->sample[p])
        return -ENOMEM;
    r->sample[p][r->nsamples[p]++] = (struct recorded_sample){
        (uint32_t)stack - 1, v[TRACE_sample_pc].u, (uint8_t)v[TRACE_sample_flags].u};
    return 0;
}

/* Reads the first epoch only. Ids are 1, 2, ... in an epoch, so an entry's index is its id - 1. */
int recorded_load(const char *path) {
    const uint64_t want = 1ull << TRACE_frame | 1ull << TRACE_stack | 1ull << TRACE_module |
                          1ull << TRACE_process | 1ull << TRACE_sample;
    struct reader_data data = {0};
    struct trace_value v[TRACE_MAX_FIELDS];
    struct trace_rows rows;
    struct reader *r;
    int err = reader_open(&r, path);

    if (err) {
        fprintf(stderr, "probing-fleet: %s: %s\n", path, reader_strerror(err));
        return err;
    }
    struct epochs *es = epochs_new(r);
    const struct dict *d = es ? epochs_get(es, 0) : NULL;
    err = d ? 0 : -ENOMEM;
    for (size_t i = 0; !err && i < reader_blocks(r); i++) {
        int type;
        if (reader_block(r, i)->epoch || reader_load(r, i, &data) != 0)
            continue;
        trace_rows_start(&rows, &data.h, data.data);
        while (!err && (type = trace_rows_next(&rows, want, v)) > 0)
            err = take(v, type, d);
    }
    for (int p = 0; !err && p < PHASES; p++)
        if (recorded.nsamples[p] == 0)
            err = -ENODATA;
    if (err)
        fprintf(stderr, "probing-fleet: %s: %s\n", path,
                err == -ENODATA
                    ? "no recording of a training with collectives: some phase has no stack"
                    : strerror(-err));
    reader_data_free(&data);
    epochs_free(es);
    reader_close(r);
    return err;
}
