/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pprof.c - writes profile.pb.gz, for pprof and all programs that read its format.
 *
 * HOW IT WORKS: the message Profile consists of repeated fields, in any order. What a sample refers to (strings, functions, locations) is
 * written before the first sample that needs it. Memory holds the numbers of what was written, and the distinct stacks.
 */
#include <errno.h>
#include <stdlib.h>

#include "frames.h"
#include "gzip.h"
#include "profile.h"

/* Numbers of fields: github.com/google/pprof, proto/profile.proto, version 3 syntax, as of 2024 (commit 00fe71aa). */
enum profile_field {
    PROFILE_SAMPLE_TYPE = 1,
    PROFILE_SAMPLE = 2,
    PROFILE_MAPPING = 3,
    PROFILE_LOCATION = 4,
    PROFILE_FUNCTION = 5,
    PROFILE_STRING_TABLE = 6,
    PROFILE_TIME_NANOS = 9,
    PROFILE_DURATION_NANOS = 10,
    PROFILE_PERIOD_TYPE = 11,
    PROFILE_PERIOD = 12,
    PROFILE_COMMENT = 13,
    PROFILE_DEFAULT_SAMPLE_TYPE = 14,
};
enum value_type_field { VALUE_TYPE_TYPE = 1, VALUE_TYPE_UNIT = 2 };
enum sample_field { SAMPLE_LOCATION_ID = 1, SAMPLE_VALUE = 2, SAMPLE_LABEL = 3 };
enum label_field { LABEL_KEY = 1, LABEL_STR = 2, LABEL_NUM = 3, LABEL_NUM_UNIT = 4 };
enum mapping_field {
    MAPPING_ID = 1,
    MAPPING_FILENAME = 5,
    MAPPING_BUILD_ID = 6,
    MAPPING_HAS_FUNCTIONS = 7,
    MAPPING_HAS_FILENAMES = 8,
    MAPPING_HAS_LINE_NUMBERS = 9,
    MAPPING_HAS_INLINE_FRAMES = 10,
};
enum location_field { LOCATION_ID = 1, LOCATION_MAPPING_ID = 2, LOCATION_LINE = 4 };
enum line_field { LINE_FUNCTION_ID = 1, LINE_LINE = 2 };
enum function_field {
    FUNCTION_ID = 1,
    FUNCTION_NAME = 2,
    FUNCTION_SYSTEM_NAME = 3,
    FUNCTION_FILENAME = 4,
    FUNCTION_START_LINE = 5,
};

struct pprof {
    struct export *x;
    FILE *out; /* compresses into x->out */
    struct pb b;
    struct pb_strings strings;
    struct export_frames frames;
    uint8_t *has_frame, *has_function; /* by number */
    struct pb lists; /* the encoded locations of each stack, as samples have them */
    struct list {
        size_t at, n;
    } * list; /* by number of the stack */
};

static void value_type(struct pprof *p, unsigned field, const char *type, const char *unit) {
    uint32_t t = pb_string(&p->strings, type), u = pb_string(&p->strings, unit);
    size_t m = pb_begin(&p->b, field);

    pb_uint(&p->b, VALUE_TYPE_TYPE, t);
    pb_uint(&p->b, VALUE_TYPE_UNIT, u);
    pb_end(&p->b, m);
}

/* Returns the number of an ELF file, written if it is new; 0: the path is empty. */
static uint32_t mapping(struct pprof *p, const char *path, int *rc) {
    struct export_file file;

    *rc = export_frames_file(&p->frames, path, &file);
    if (*rc < 0 || !file.is_new)
        return file.number;
    uint32_t build_id = pb_string(&p->strings, file.build_id);
    uint32_t name = pb_string(&p->strings, path);
    size_t m = pb_begin(&p->b, PROFILE_MAPPING);
    pb_uint(&p->b, MAPPING_ID, file.number);
    pb_uint(&p->b, MAPPING_FILENAME, name);
    pb_uint(&p->b, MAPPING_BUILD_ID, build_id);
    /* The profile has all that is known: readers need not look anything up in the file. */
    pb_uint(&p->b, MAPPING_HAS_FUNCTIONS, 1);
    pb_uint(&p->b, MAPPING_HAS_FILENAMES, 1);
    pb_uint(&p->b, MAPPING_HAS_LINE_NUMBERS, 1);
    pb_uint(&p->b, MAPPING_HAS_INLINE_FRAMES, 1);
    pb_end(&p->b, m);
    return file.number;
}

static void function(struct pprof *p, const struct export_frame *f) {
    uint32_t name = pb_string(&p->strings, f->name), file = pb_string(&p->strings, f->file);
    size_t m = pb_begin(&p->b, PROFILE_FUNCTION);

    pb_uint(&p->b, FUNCTION_ID, (uint64_t)f->function);
    pb_uint(&p->b, FUNCTION_NAME, name);
    pb_uint(&p->b, FUNCTION_SYSTEM_NAME, name);
    pb_uint(&p->b, FUNCTION_FILENAME, file);
    pb_int(&p->b, FUNCTION_START_LINE, f->firstline);
    pb_end(&p->b, m);
}

static int location(struct pprof *p, const struct export_frame *f) {
    int rc = 0;

    if (p->has_frame[f->id])
        return 0;
    p->has_frame[f->id] = 1;
    if (!p->has_function[f->function]) {
        p->has_function[f->function] = 1;
        function(p, f);
    }
    uint32_t map = mapping(p, f->module, &rc);
    size_t m = pb_begin(&p->b, PROFILE_LOCATION);
    pb_uint(&p->b, LOCATION_ID, (uint64_t)f->id);
    if (map)
        pb_uint(&p->b, LOCATION_MAPPING_ID, map);
    size_t line = pb_begin(&p->b, LOCATION_LINE);
    pb_uint(&p->b, LINE_FUNCTION_ID, (uint64_t)f->function);
    pb_int(&p->b, LINE_LINE, f->line);
    pb_end(&p->b, line);
    pb_end(&p->b, m);
    return rc;
}

/* Writes a label. A number gets its key as its unit: readers take a 0 without a unit for no value. */
static void label(struct pb *b, uint32_t key, uint32_t text, int64_t number) {
    size_t m = pb_begin(b, SAMPLE_LABEL);

    pb_uint(b, LABEL_KEY, key);
    if (text) {
        pb_uint(b, LABEL_STR, text);
    } else {
        pb_int(b, LABEL_NUM, number);
        pb_uint(b, LABEL_NUM_UNIT, key);
    }
    pb_end(b, m);
}

/* Gives the encoded locations of a stack. They are kept, as most stacks occur in many samples. */
static int locations(struct pprof *p, int64_t stack, const struct list **out) {
    struct list *l = &p->list[export_frames_stack(&p->frames, stack)];
    const struct export_frame *const *frame;
    size_t n;

    *out = l;
    if (l->n)
        return 0;
    int rc = export_frames_of(&p->frames, stack, &frame, &n);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = location(p, frame[i]);
    if (rc < 0)
        return rc;
    l->at = p->lists.n;
    while (n-- > 0) /* the innermost first */
        pb_packed(&p->lists, (uint64_t)frame[n]->id);
    l->n = p->lists.n - l->at;
    return p->lists.err;
}

static int sample(struct pprof *p, const struct profile_row *row) {
    const struct export_thread *t = row->thread;
    const struct list *stack;
    char name[400];
    int rc = locations(p, row->stack, &stack);

    if (rc < 0)
        return rc;
    uint32_t keys[] = {pb_string(&p->strings, "thread"), pb_string(&p->strings, "tid"),
                       pb_string(&p->strings, "pid"), pb_string(&p->strings, "rank"),
                       pb_string(&p->strings, "step")};
    uint32_t thread = pb_string(&p->strings, export_thread_name(t, name, sizeof name));
    size_t m = pb_begin(&p->b, PROFILE_SAMPLE);
    pb_bytes(&p->b, SAMPLE_LOCATION_ID, p->lists.bytes + stack->at, stack->n);
    size_t packed = pb_begin(&p->b, SAMPLE_VALUE);
    pb_packed(&p->b, (uint64_t)row->count);
    pb_packed(&p->b, (uint64_t)row->cpu);
    pb_packed(&p->b, (uint64_t)row->wall);
    pb_end(&p->b, packed);
    label(&p->b, keys[0], thread, 0);
    label(&p->b, keys[1], 0, t->tid);
    label(&p->b, keys[2], 0, t->process->pid);
    if (t->process->rank >= 0)
        label(&p->b, keys[3], 0, t->process->rank);
    if (row->step >= 0)
        label(&p->b, keys[4], 0, row->step);
    pb_end(&p->b, m);
    return 0;
}

static int put(void *ctx, const struct export_process *process, const struct profile_row *row,
               size_t n) {
    struct pprof *p = ctx;
    int rc = 0;

    (void)process;
    for (size_t i = 0; i < n && rc == 0; i++) {
        if ((rc = sample(p, &row[i])) == 0)
            rc = pb_write(&p->b, p->out);
    }
    return rc;
}

static int head(struct pprof *p) {
    struct export *x = p->x;
    char text[600], name[400];

    pb_strings_begin(&p->strings, &p->b, PROFILE_STRING_TABLE);
    value_type(p, PROFILE_SAMPLE_TYPE, "samples", "count");
    value_type(p, PROFILE_SAMPLE_TYPE, "cpu", "nanoseconds");
    value_type(p, PROFILE_SAMPLE_TYPE, "wall", "nanoseconds");
    value_type(p, PROFILE_PERIOD_TYPE, "wall", "nanoseconds");
    pb_int(&p->b, PROFILE_PERIOD, x->nprocesses ? x->process[0].period : 0);
    pb_uint(&p->b, PROFILE_DEFAULT_SAMPLE_TYPE, pb_string(&p->strings, "cpu"));
    pb_int(&p->b, PROFILE_TIME_NANOS, x->first);
    pb_int(&p->b, PROFILE_DURATION_NANOS, x->last - x->first);
    if (x->title || x->nprocesses) {
        snprintf(text, sizeof text, "%s, %zu process%s",
                 x->title ? x->title : export_process_name(&x->process[0], name, sizeof name),
                 x->nprocesses, x->nprocesses == 1 ? "" : "es");
        uint32_t comment = pb_string(&p->strings, text);
        pb_uint(&p->b, PROFILE_COMMENT, comment);
    }
    /* Readers take the first mapping for the program. */
    sqlite3_stmt *st = NULL;
    int rc = export_prepare(
        x, "SELECT t.exe FROM temp.export_trace e JOIN trace_file t ON t.id = e.id LIMIT 1", &st);
    if (rc == 0 && (rc = export_step(x, st)) > 0)
        mapping(p, export_text(st, 0), &rc);
    sqlite3_finalize(st);
    return rc < 0 ? rc : pb_write(&p->b, p->out);
}

static int write_pprof(struct export *x) {
    struct pprof p = {.x = x};
    int rc = export_frames_open(&p.frames, x);

    if (rc == 0) {
        p.has_frame = calloc((size_t)p.frames.max_frame + 1, 1);
        p.has_function = calloc((size_t)p.frames.max_function + 1, 1);
        p.list = calloc((size_t)p.frames.max_stack + 1, sizeof *p.list);
        if (!p.has_frame || !p.has_function || !p.list || !(p.out = gzip_open(x->out)))
            rc = -ENOMEM;
    }
    if (rc == 0)
        rc = head(&p);
    if (rc == 0)
        rc = profile_rows(x, put, &p);
    if (p.out && fclose(p.out) != 0 && rc == 0)
        rc = -EIO;
    export_frames_close(&p.frames);
    pb_strings_free(&p.strings);
    pb_free(&p.b);
    free(p.has_frame);
    free(p.has_function);
    free(p.list);
    pb_free(&p.lists);
    return rc;
}

const struct export_format export_pprof = {
    "pprof", ".pb.gz", "profile of pprof and all that reads its format", 1, write_pprof};
