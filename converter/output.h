/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.h - whether a command may write over a file that is there.
 *
 *     char why[OUTPUT_WHY];
 *     int err = output_check("out.db", OUTPUT_DATABASE, &inputs, why);
 *     if (err < 0) ... say why ...          // 0: nothing is there; 1: what is there may be replaced
 *
 * Only what Probing itself made may be replaced, or an empty regular file; never an input, by whatever name it is
 * given, and never a symlink, device, FIFO or directory. Nothing is opened before it is known to be a regular file.
 */
#ifndef PROBING_CONVERTER_OUTPUT_H
#define PROBING_CONVERTER_OUTPUT_H

#include <sys/types.h>

#include "inputs.h"

#define OUTPUT_WHY 4400

/* In the header of each database (PRAGMA application_id, user_version): "PRBD", and the version of its tables and views. */
#define OUTPUT_APPLICATION_ID 0x50524244
#define OUTPUT_SCHEMA_VERSION 10
/* In the first lines of each picture. */
#define OUTPUT_PICTURE_MARK "<!-- probing-flamegraph -->"
#define OUTPUT_REPORT_MARK  "<!-- probing-report -->"

enum output_kind {
    OUTPUT_DATABASE, /* of probing-convert */
    OUTPUT_PICTURE,  /* of probing-flamegraph */
    OUTPUT_FOLDED,   /* text of probing-flamegraph: "a;b;c 12" */
    OUTPUT_TRACE,
    OUTPUT_SIDECAR, /* what SQLite leaves beside a database: journal, WAL and its index */
    OUTPUT_REPORT,  /* of probing-report */
    OUTPUT_NEW, /* nothing but an empty file may be there: what cannot be told from other people's files */
    OUTPUT_ANY, /* the user said that it is to be replaced: all but traces and databases */
};

/* 0, 1 or -errno with a sentence in `why`. `inputs` may be NULL. */
int output_check(const char *path, enum output_kind kind, const struct inputs *inputs,
                 char why[OUTPUT_WHY]);
/* Permissions for what is made of `inputs` (may be NULL): the umask's, as open to others as the most private of them. */
mode_t output_mode(const struct inputs *inputs);

#endif
