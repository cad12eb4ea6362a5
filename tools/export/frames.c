/* SPDX-License-Identifier: Apache-2.0 */
#include "frames.h"

#include <errno.h>

#include "tree.h" /* EXPORT_UNREAD */

int export_frames_open(struct export_frames *f, struct export *x) {
    *f = (struct export_frames){.x = x};
    int rc = export_stacks_open(&f->stacks, x);

    if (rc < 0)
        return rc;
    f->max_frame = export_frames_max(f->stacks) + 1;
    f->max_function = export_functions_max(f->stacks) + 1;
    f->max_stack = export_stacks_max(f->stacks) + 1;
    f->none = (struct export_frame){.id = f->max_frame,
                                    .function = f->max_function,
                                    .name = EXPORT_UNREAD,
                                    .file = "",
                                    .module = "",
                                    .native = 1};
    return export_prepare(x, "SELECT max(build_id) FROM module WHERE path = ?1", &f->build_id);
}

void export_frames_close(struct export_frames *f) {
    export_stacks_close(f->stacks);
    pb_names_free(&f->files);
    sqlite3_finalize(f->build_id);
}

int export_frames_of(struct export_frames *f, int64_t stack,
                     const struct export_frame *const **frame, size_t *n) {
    static const struct export_frame *none[1];
    int rc = export_stack(f->stacks, stack, frame, n);

    if (rc == 0 && *n == 0) {
        none[0] = &f->none;
        *frame = none;
        *n = 1;
    }
    return rc;
}

int64_t export_frames_stack(const struct export_frames *f, int64_t stack) {
    return stack ? stack : f->max_stack;
}

int export_frames_file(struct export_frames *f, const char *path, struct export_file *out) {
    int rc = 0;

    *out = (struct export_file){.build_id = ""};
    out->number = pb_name(&f->files, path, &out->is_new);
    if (out->is_new) {
        sqlite3_reset(f->build_id);
        sqlite3_bind_text(f->build_id, 1, path, -1, SQLITE_STATIC);
        if ((rc = export_step(f->x, f->build_id)) > 0)
            out->build_id = export_text(f->build_id, 0);
    }
    return rc < 0 ? rc : f->files.err;
}
