/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.h - decides whether a command may overwrite an existing file.
 *
 *     char why[OUTPUT_WHY];
 *     int err = output_check("out.db", OUTPUT_DATABASE, &inputs, why);
 *     if (err < 0) ... say why ...          // 0: there is no such file; 1: the file may be replaced
 *
 * Only files that Probing itself made, and empty regular files, may be replaced; never an input, under whatever name, and never a symlink,
 * device, FIFO or directory. A file is opened only once it is known to be a regular file.
 */
#ifndef PROBING_CONVERTER_OUTPUT_H
#define PROBING_CONVERTER_OUTPUT_H

#include <sqlite3.h>
#include <sys/types.h>

#include "inputs.h"

#define OUTPUT_WHY 4400

/* What the header of each database holds (PRAGMA application_id, user_version): "PRBD", and the version of its tables and views. */
#define OUTPUT_APPLICATION_ID 0x50524244
#define OUTPUT_SCHEMA_VERSION 13
/* The comment by which output_check() recognizes our pictures and reports; it stands in their first lines. */
#define OUTPUT_PICTURE_MARK "<!-- probing-flamegraph -->"
#define OUTPUT_REPORT_MARK  "<!-- probing-report -->"

enum output_kind {
    OUTPUT_DATABASE, /* made by probing-convert */
    OUTPUT_PICTURE,  /* made by probing-flamegraph */
    OUTPUT_FOLDED,   /* text made by probing-flamegraph: "a;b;c 12" */
    OUTPUT_TRACE,
    OUTPUT_SIDECAR, /* what SQLite leaves beside a database: journal, WAL and its index */
    OUTPUT_REPORT,  /* made by probing-report */
    OUTPUT_NEW, /* a kind that cannot be recognized as ours: only an empty file may be replaced */
    OUTPUT_ANY, /* the user asked to replace it: anything but traces and databases may be */
};

/* Returns 0 or 1 as above, or -errno with a sentence in `why`. `inputs` may be NULL. */
int output_check(const char *path, enum output_kind kind, const struct inputs *inputs,
                 char why[OUTPUT_WHY]);
/* Returns the permissions that an output made from `inputs` (may be NULL) has at most: those of the most private input. For an input that is
 * not a file (a pipe, a URL) they are the owner's alone, since nothing says who may read it. */
mode_t output_most(const struct inputs *inputs);
/* Returns the permissions for a new output: these, without those that the umask takes away. */
mode_t output_mode(const struct inputs *inputs);
/* sqlite3_open_v2() of a file by its name, also one that looks like a URI ("file:x?mode=ro"), which SQLite may be built to take for one. */
int output_open(const char *path, sqlite3 **db, int flags);
/* Returns why the first query to such a file failed. What somebody who was adding to it left when it was killed has been undone if the file is this user's. */
const char *output_why(sqlite3 *db);

#endif
