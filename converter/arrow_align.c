/* SPDX-License-Identifier: Apache-2.0 */
/* arrow_align.c - probing_align(): finds out what only all traces together tell (how their clocks relate (align.h), and the run of each),
 * for programs that read traces without a database. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow_read.h"
#include "arrow_stop.h"
#include "convert.h"
#include "output.h"
#include "place_rows.h"
#include "source.h"
#include "store.h"
#include "vtab.h"

/* When none of the files is a trace: makes a database without rows; whoever reads the files will report why. */
static int make_empty(const char *out, const struct inputs *in, char *error, size_t n) {
    struct store *st = calloc(1, sizeof *st);
    int err = st ? store_open(st, out, STORE_ADD, NULL, in) : -ENOMEM;

    if (!err)
        err = store_finish(st, NULL);
    if (err && st && n)
        snprintf(error, n, "%s", st->error);
    free(st);
    return err;
}

static int index_places(const char *out) {
    sqlite3 *db = NULL;
    int rc = output_open(out, &db, SQLITE_OPEN_READWRITE);

    if (rc == SQLITE_OK)
        rc = place_rows_index(db);
    sqlite3_close(db);
    return rc == SQLITE_OK ? 0 : -EIO;
}

static int stopped(void *ctx, double part) {
    (void)ctx;
    (void)part;
    return arrow_stopped();
}

int probing_align(const char *const *paths, size_t npaths, uint32_t flags, const char *out,
                  char *error, size_t n) {
    struct convert_result *res = calloc(1, sizeof *res);
    const struct convert_options opt = {
        .out = out, .append = 1, .need = 1ull << TRACE_process | VTAB_PLACES, .tick = stopped};
    struct inputs in = {0};
    int err = res ? 0 : -ENOMEM;

    source_stopped = arrow_stopped;
    if (n)
        snprintf(error, n, "no memory");
    for (size_t i = 0; !err && i < npaths; i++)
        if ((err = inputs_add(&in, paths[i], flags & PROBING_ALONE ? 0 : INPUTS_SIBLINGS)) != 0 &&
            n)
            snprintf(error, n, "cannot open %s: %s", paths[i], inputs_strerror(err));
    if (!err) {
        if ((err = convert(&in, &opt, res)) == -ENODATA)
            err = make_empty(out, &in, error, n);
        else if (err && n)
            snprintf(error, n, "%s", res->error);
        else if (!err && (err = index_places(out)) != 0 && n)
            snprintf(error, n, "%s: cannot be written", out);
    }
    inputs_free(&in);
    free(res);
    return err;
}
