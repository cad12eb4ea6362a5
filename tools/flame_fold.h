/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flame_fold.h - the samples of a database as a flame tree.
 *
 *     struct fold fold = {.cpu = 1};
 *     int rc = fold_samples(f, db, &fold);     // f from flame_new(); call flame_finish() then
 *
 * Threads of one role and name (FOLD_GROUP) are one group, whatever their process, and where there is more than one group, each gets a
 * frame at the root. With `split`, each process has one above those.
 *
 * Plumbing is left out unless it is asked for: what called the outermost Python frame (main,
 * start_thread), and frames of the interpreter and of importlib between other frames. At the inner
 * end of a stack they stay: there they say what the interpreter itself is doing. Functions that their
 * library has no name for are shown as that library, and left out between functions of it that have one.
 */
#ifndef PROBING_TOOLS_FLAME_FOLD_H
#define PROBING_TOOLS_FLAME_FOLD_H

#include <sqlite3.h>

#include "flame.h"
#include "fold.h"

/* SQLITE_OK, or SQLite's code (then sqlite3_errmsg(db) says more). */
int fold_samples(struct flame *f, sqlite3 *db, struct fold *fold);

/*
 * The same by hand, for other groups: the node of a stack (table stack) below `node`. `fold` says what of a stack is
 * shown; it and the tree must live until fold_close(), which is called in any case, before flame_finish(). The weight goes to the lines
 * of the stack's functions alone: a label has the line where most of it is.
 */
struct fold_stacks;
int fold_open(struct fold_stacks **out, struct flame *f, sqlite3 *db, const struct fold *fold);
int fold_stack(struct fold_stacks *s, uint32_t node, int64_t stack, uint64_t weight, uint32_t *out);
void fold_close(struct fold_stacks *s);

#endif
