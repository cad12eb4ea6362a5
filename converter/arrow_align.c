/* SPDX-License-Identifier: Apache-2.0 */
/* arrow_align.c - probing_align(): the alignment of clocks (align.h) for who reads traces without a database of them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "align.h"
#include "append.h"
#include "arrow_read.h"
#include "clock_rows.h"
#include "store.h"

static int align_into(struct store *st, const struct inputs *in) {
    const struct when always = {0};
    size_t *first = calloc(in->n + 1, sizeof *first);
    struct align *a = first ? align_inputs(in, first, &always, &always, NULL, NULL) : NULL;
    char line[512];
    int err = store_failed(st, a ? append_clocks(st->db, a) : SQLITE_NOMEM, "reading it");

    if (!err)
        err = store_failed(st, align_solve(a) == 0 ? SQLITE_OK : SQLITE_NOMEM, "aligning clocks");
    if (!err)
        err = store_failed(st, clock_rows_write(st->db, a, line, sizeof line), "writing the rows");
    align_free(a);
    free(first);
    return err;
}

int probing_align(const char *const *paths, size_t npaths, uint32_t flags, const char *out,
                  char *error, size_t n) {
    struct store *st = calloc(1, sizeof *st);
    struct inputs in = {0};
    int err = st ? 0 : -ENOMEM;

    if (n)
        snprintf(error, n, "no memory");
    for (size_t i = 0; !err && i < npaths; i++)
        if ((err = inputs_add(&in, paths[i], flags & PROBING_ALONE ? 0 : INPUTS_SIBLINGS)) != 0 &&
            n)
            snprintf(error, n, "cannot open %s: %s", paths[i], inputs_strerror(err));
    if (!err) {
        if ((err = store_open(st, out, STORE_ADD, NULL, &in)) == 0 &&
            (err = align_into(st, &in)) != 0)
            store_abort(st);
        else if (!err)
            err = store_finish(st, NULL);
        if (err && n)
            snprintf(error, n, "%s", st->error);
    }
    inputs_free(&in);
    free(st);
    return err;
}
