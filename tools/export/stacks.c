/* SPDX-License-Identifier: Apache-2.0 */
#include "stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct export_stacks {
    struct export *x;
    sqlite3_stmt *frames, *frame; /* give a stack's frames, outermost first; a frame's names */
    struct export_frame **known;  /* by number */
    int64_t max_frame, max_function, max_stack;
    const struct export_frame **stack;
    size_t cap;
};

int export_stacks_open(struct export_stacks **out, struct export *x) {
    struct export_stacks *s = *out = calloc(1, sizeof *s);
    sqlite3_stmt *st = NULL;
    int rc = s ? 0 : -ENOMEM;

    if (rc < 0)
        return rc;
    s->x = x;
    rc = export_prepare(
        x,
        "SELECT coalesce((SELECT max(id) FROM frame), 0), coalesce((SELECT max(id) FROM function), 0),"
        " coalesce((SELECT max(id) FROM stack), 0)",
        &st);
    if (rc == 0 && (rc = export_step(x, st)) > 0) {
        s->max_frame = sqlite3_column_int64(st, 0);
        s->max_function = sqlite3_column_int64(st, 1);
        s->max_stack = sqlite3_column_int64(st, 2);
        rc = 0;
    }
    sqlite3_finalize(st);
    if (rc == 0)
        rc = export_prepare(x, "SELECT frame FROM stack_frame WHERE stack = ?1 ORDER BY depth DESC",
                            &s->frames);
    if (rc == 0)
        rc = export_prepare(
            x,
            "SELECT r.function, f.name, coalesce(r.file, f.file), f.module, r.line, f.firstline, f.type"
            " FROM frame r JOIN function f ON f.id = r.function WHERE r.id = ?1",
            &s->frame);
    if (rc == 0 && !(s->known = calloc((size_t)s->max_frame + 1, sizeof *s->known)))
        rc = -ENOMEM;
    return rc;
}

void export_stacks_close(struct export_stacks *s) {
    if (!s)
        return;
    for (int64_t i = 0; s->known && i <= s->max_frame; i++) {
        if (s->known[i]) {
            free((char *)s->known[i]->name);
            free((char *)s->known[i]->file);
            free((char *)s->known[i]->module);
            free(s->known[i]);
        }
    }
    free(s->known);
    free(s->stack);
    sqlite3_finalize(s->frames);
    sqlite3_finalize(s->frame);
    free(s);
}

/* Finds a frame. Returns 0 or -errno; *out NULL: there is no such frame. */
static int look_up(struct export_stacks *s, int64_t id, const struct export_frame **out) {
    struct export_frame *f;
    int rc;

    *out = NULL;
    if (id <= 0 || id > s->max_frame)
        return 0;
    if ((*out = s->known[id]))
        return 0;
    sqlite3_reset(s->frame);
    sqlite3_bind_int64(s->frame, 1, id);
    if ((rc = export_step(s->x, s->frame)) <= 0)
        return rc;
    if (!(f = s->known[id] = calloc(1, sizeof *f)))
        return -ENOMEM;
    f->id = id;
    f->function = sqlite3_column_int64(s->frame, 0);
    f->name = strdup(export_text(s->frame, 1));
    f->file = strdup(export_text(s->frame, 2));
    f->module = strdup(export_text(s->frame, 3));
    f->line = sqlite3_column_int64(s->frame, 4);
    f->firstline = sqlite3_column_int64(s->frame, 5);
    f->native = sqlite3_column_int(s->frame, 6);
    *out = f;
    return f->name && f->file && f->module ? 0 : -ENOMEM;
}

int export_stack(struct export_stacks *s, int64_t stack, const struct export_frame *const **frames,
                 size_t *n) {
    const struct export_frame *f;
    int rc = 1;

    *n = 0;
    sqlite3_reset(s->frames);
    sqlite3_bind_int64(s->frames, 1, stack);
    while (stack && (rc = export_step(s->x, s->frames)) > 0) {
        if ((rc = look_up(s, sqlite3_column_int64(s->frames, 0), &f)) < 0)
            break;
        if (!f || (f->native && s->x->python))
            continue;
        if (*n == s->cap) {
            size_t cap = s->cap ? s->cap * 2 : 256;
            const struct export_frame **more = realloc(s->stack, cap * sizeof *more);
            if (!more) {
                rc = -ENOMEM;
                break;
            }
            s->stack = more;
            s->cap = cap;
        }
        s->stack[(*n)++] = f;
    }
    *frames = s->stack;
    return rc < 0 ? rc : 0;
}

int64_t export_frames_max(const struct export_stacks *s) {
    return s->max_frame;
}

int64_t export_functions_max(const struct export_stacks *s) {
    return s->max_function;
}

int64_t export_stacks_max(const struct export_stacks *s) {
    return s->max_stack;
}

const char *export_place(const struct export_frame *f) {
    const char *path = *f->file ? f->file : f->module, *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}
