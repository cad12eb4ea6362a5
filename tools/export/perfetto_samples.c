/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perfetto_samples.c - writes samples as StackSample packets, which Perfetto's trace processor shows from v58 on. Each has a weight; the older
 * PerfSample and StreamingProfilePacket always count as one tick. Callstacks and frames have the numbers of the database.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "frames.h"
#include "perfetto.h"
#include "samples.h"

struct samples {
    struct perfetto *p;
    struct export_frames frames;
    struct pb_names function, mapping_path, source;
    uint8_t *has_stack, *has_frame,
        *has_task; /* by number of the stack, number of the frame, index of the thread */
};

static void put_descriptor(struct pb *b, unsigned field, const char *name, unsigned unit) {
    size_t m = pb_begin(b, field);

    pb_text(b, DESCRIPTOR_NAME, name);
    pb_uint(b, DESCRIPTOR_UNIT, unit);
    pb_end(b, m);
}

void perfetto_sample_defaults(struct pb *b) {
    size_t m = pb_begin(b, DEFAULTS_STACK_SAMPLE);

    pb_text(b, STACK_DEFAULTS_SOURCE, "probing");
    put_descriptor(b, STACK_DEFAULTS_PRIMARY, "wall-time", UNIT_NANOSECONDS);
    put_descriptor(b, STACK_DEFAULTS_FOLLOWERS, "cpu-time", UNIT_NANOSECONDS);
    put_descriptor(b, STACK_DEFAULTS_FOLLOWERS, "ticks", UNIT_COUNT);
    pb_end(b, m);
}

/* Turns hexadecimal digits into bytes. Returns the number of bytes. */
static size_t from_hex(const char *text, uint8_t *bytes, size_t cap) {
    unsigned byte;
    size_t n = 0;

    while (n < cap && sscanf(text + 2 * n, "%2x", &byte) == 1)
        bytes[n++] = (uint8_t)byte;
    return n;
}

/* Returns the number of a frame's file, an ELF file or a source file; 0: it has none. */
static uint64_t mapping(struct samples *s, const char *path, int *rc) {
    struct pb *b = &s->p->interned;
    struct export_file file;
    uint8_t id[64];

    *rc = export_frames_file(&s->frames, path, &file);
    if (*rc < 0 || !file.is_new)
        return file.number;
    uint32_t iid = file.number;
    size_t id_bytes = from_hex(file.build_id, id, sizeof id);
    if (id_bytes) {
        size_t entry = pb_begin(b, INTERNED_BUILD_IDS);
        pb_uint(b, ENTRY_IID, iid);
        pb_bytes(b, ENTRY_TEXT, id, id_bytes);
        pb_end(b, entry);
    }
    /* Readers put a slash before each part of a path. */
    uint64_t name = perfetto_intern(s->p, &s->mapping_path, INTERNED_MAPPING_PATHS,
                                    *path == '/' && path[1] ? path + 1 : path);
    size_t m = pb_begin(b, INTERNED_MAPPINGS);
    pb_uint(b, MAPPING_IID, iid);
    if (id_bytes)
        pb_uint(b, MAPPING_BUILD_ID, iid);
    pb_uint(b, MAPPING_PATH_STRING_IDS, name);
    pb_end(b, m);
    return iid;
}

static int put_frame(struct samples *s, const struct export_frame *f) {
    struct pb *b = &s->p->interned;
    int rc = 0;

    if (s->has_frame[f->id])
        return 0;
    s->has_frame[f->id] = 1;
    uint64_t name = perfetto_intern(s->p, &s->function, INTERNED_FUNCTION_NAMES, f->name);
    uint64_t source = perfetto_intern(s->p, &s->source, INTERNED_SOURCE_PATHS, f->file);
    uint64_t map = mapping(s, *f->module ? f->module : f->file, &rc);
    size_t m = pb_begin(b, INTERNED_FRAMES);
    pb_int(b, FRAME_IID, f->id);
    pb_uint(b, FRAME_FUNCTION_NAME_ID, name);
    if (map) { /* line as rel_pc: readers without lines tell a function's frames apart */
        pb_uint(b, FRAME_MAPPING_ID, map);
        pb_int(b, FRAME_REL_PC, f->line);
    }
    if (source)
        pb_uint(b, FRAME_SOURCE_PATH_IID, source);
    if (f->line)
        pb_int(b, FRAME_LINE_NUMBER, f->line);
    pb_uint(b, FRAME_KIND, f->native ? KIND_NATIVE : KIND_INTERPRETED);
    pb_end(b, m);
    return rc;
}

/* Writes the stack if it was not written yet; *iid: its number in the file. */
static int put_stack(struct samples *s, int64_t stack, int64_t *iid) {
    const struct export_frame *const *frame;
    struct pb *b = &s->p->interned;
    size_t n;

    *iid = export_frames_stack(&s->frames, stack);
    if (s->has_stack[*iid])
        return 0;
    s->has_stack[*iid] = 1;
    int rc = export_frames_of(&s->frames, stack, &frame, &n);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = put_frame(s, frame[i]);
    size_t m = pb_begin(b, INTERNED_CALLSTACKS);
    pb_int(b, CALLSTACK_IID, *iid);
    for (size_t i = 0; i < n; i++)
        pb_int(b, CALLSTACK_FRAME_IDS, frame[i]->id);
    pb_end(b, m);
    return rc;
}

static void put_task(struct samples *s, size_t thread) {
    const struct export *x = s->p->x;
    struct pb *b = &s->p->interned;

    if (s->has_task[thread])
        return;
    s->has_task[thread] = 1;
    size_t m = pb_begin(b, INTERNED_TASK_CONTEXTS);
    pb_uint(b, TASK_IID, thread + 1);
    pb_uint(b, TASK_PID, s->p->pid[x->thread[thread].process - x->process]);
    pb_uint(b, TASK_TID, s->p->tid[thread]);
    pb_end(b, m);
}

static int put_sample(struct samples *s, const struct export_sample *sample) {
    const struct export_thread *t = export_thread(s->p->x, sample->thread);
    struct pb *b = &s->p->b;
    int64_t stack;
    int rc;

    if (!t || !t->process)
        return 0;
    size_t thread = (size_t)(t - s->p->x->thread);
    if ((rc = put_stack(s, sample->stack, &stack)) < 0)
        return rc;
    put_task(s, thread);
    size_t packet = perfetto_packet(s->p, sample->ts), m = pb_begin(b, PACKET_STACK_SAMPLE);
    pb_uint(b, STACK_SAMPLE_TASK_CONTEXT_IID, thread + 1);
    pb_int(b, STACK_SAMPLE_CALLSTACK_IID, stack);
    pb_int(b, STACK_SAMPLE_PRIMARY_WEIGHT, sample->ns);
    size_t weights = pb_begin(b, STACK_SAMPLE_FOLLOWER_WEIGHTS);
    pb_packed(b, sample->flags & 1 ? (uint64_t)sample->ns : 0);
    pb_packed(b, (uint64_t)sample->count);
    pb_end(b, weights);
    pb_end(b, m);
    return perfetto_packet_end(s->p, packet);
}

int perfetto_samples(struct perfetto *p) {
    struct samples s = {.p = p};
    struct export_sample sample;
    sqlite3_stmt *st = NULL;
    int rc = export_frames_open(&s.frames, p->x);

    if (rc == 0) {
        s.has_stack = calloc((size_t)s.frames.max_stack + 1, 1);
        s.has_frame = calloc((size_t)s.frames.max_frame + 1, 1);
        s.has_task = calloc(p->x->nthreads + 1, 1);
        rc = s.has_stack && s.has_frame && s.has_task
                 ? export_samples(p->x, EXPORT_AS_RECORDED, &st)
                 : -ENOMEM;
    }
    while (rc == 0 && (rc = export_sample(p->x, st, &sample)) > 0)
        rc = put_sample(&s, &sample);
    sqlite3_finalize(st);
    export_frames_close(&s.frames);
    pb_names_free(&s.function);
    pb_names_free(&s.mapping_path);
    pb_names_free(&s.source);
    free(s.has_stack);
    free(s.has_frame);
    free(s.has_task);
    return rc;
}
