/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flame_fold.h - reads the samples of a database into a flame tree.
 *
 *     struct fold fold = {.cpu = 1};
 *     int rc = fold_samples(f, db, &fold);     // f from flame_new(); call flame_finish() then
 *
 * Threads with the same role and name (FOLD_GROUP) form one group, whatever their process; when there is more than one group, each gets a
 * frame at the root. With `split`, each process gets a frame above those.
 *
 * Frames that are mere plumbing are left out unless they are asked for: what called the outermost Python frame (main, start_thread), and
 * frames of the interpreter and of importlib between other frames. At the inner end of a stack they stay, because there they say what the
 * interpreter itself is doing. Functions without a symbol are shown as their library, and left out between functions of that library that
 * have one.
 */
#ifndef PROBING_TOOLS_FLAME_FOLD_H
#define PROBING_TOOLS_FLAME_FOLD_H

#include <sqlite3.h>

#include "flame.h"
#include "fold.h"

/* Returns SQLITE_OK, or SQLite's code (fold_why() is a text for it). */
int fold_samples(struct flame *f, sqlite3 *db, struct fold *fold);
/* sqlite3_errmsg() says what is missing, but describes the last call alone: after an error while rows were read others have followed. */
static inline const char *fold_why(sqlite3 *db, int rc) {
    return rc == SQLITE_ERROR ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
}

/*
 * The same step by step, for other groups: fold_stack() makes the node of a stack (table stack) below `node`. `fold` says what of a stack
 * is shown; it and the tree must live until fold_close(), which must be called in any case, before flame_finish(). `weight` is added only
 * to the lines of the stack's functions, because a label gets the line with most of its weight.
 */
struct fold_stacks;
int fold_open(struct fold_stacks **out, struct flame *f, sqlite3 *db, const struct fold *fold);
int fold_stack(struct fold_stacks *s, uint32_t node, int64_t stack, uint64_t weight, uint32_t *out);
void fold_close(struct fold_stacks *s);

#endif
