/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.h - any number of traces into one SQLite database.
 *
 *     struct convert_options opt = {.out = "out.db", .say = say};
 *     struct convert_result res;
 *     int err = convert(&inputs, &opt, &res);
 *
 * Memory does not grow with the number of samples: it holds the distinct stacks, the names, and 80 bytes per
 * block of the file. The database appears under its name only when it is whole.
 * Blocking; one conversion at a time in a process (libdw, environment).
 */
#ifndef PROBING_CONVERTER_CONVERT_H
#define PROBING_CONVERTER_CONVERT_H

#include <stdint.h>

#include "inputs.h"
#include "when.h"

struct convert_options {
    const char *out; /* NULL: a database without a name, see convert_result.db */
    int force;       /* replace an existing database */
    int append; /* add to it: what it holds is not converted again. When that fails the database is as it was */
    int cache; /* with append, a database of ours alone: it holds these inputs and nothing else (-ESTALE: it does), another program
                 * that adds to it is waited for, and it need not survive the machine */
    const char *
        asked; /* then: it need have no views but those that this SQL can be about (schema_part.h); NULL: it has all */
    const char *
        clocks; /* a database whose alignment of clocks is taken for the machines that it has; NULL: none */
    struct when since, until; /* only what lies between; WHEN_NOT: from the beginning, to the end */
    uint64_t types;           /* only records of data of these types, when.h; 0: all */
    uint64_t
        need; /* records of data of other types (vtab.h) are not made rows, nor is what they lie in read: of the traces all is said as ever, but for
               * what is lost of them; 0: all */
    unsigned
        threads; /* with the one that writes the database; 0: as many as there are processors. The rows are the same */
    const char *
        names_in; /* a folder, the user's own: symbols of ELF files are kept there (symbols_kept.h); NULL: nowhere */
    int debuginfod; /* let libdw ask the network for debug information */
    /* One line about an input that cannot be used (fatal) or is damaged or cut. May be NULL. */
    void (*say)(void *ctx, const char *file, const char *line);
    /* Called now and then with what part of all input is done, 0..1; not 0: stop (-EINTR). May be NULL. */
    int (*tick)(void *ctx, double part);
    void *ctx;
};

struct sqlite3;

struct convert_result {
    unsigned traces;  /* converted */
    unsigned damaged; /* of these, with blocks missing or cut off */
    unsigned open;    /* of these, without an end: still recorded, or killed */
    unsigned failed;  /* inputs that gave nothing */
    unsigned there;   /* append: traces that were there already, as they are */
    unsigned runs;    /* different ones (view runs) */
    uint64_t records, lost, bytes_in, bytes_out;
    uint64_t samples; /* ticks: an idle thread's equal samples are one record */
    struct sqlite3 *
        db; /* without a name: the handle, to be asked and closed; nothing is left of it then, however the
                         * program ends. The attached `python` is the same database. Of a cache that was there: the handle, too, without
                         * `python`. */
    char error[4608]; /* why it failed, a sentence */
};

/* 0 when a database was written, else -errno and res->error; then there is no new file.
 * -ENODATA: no input could be used. */
int convert(const struct inputs *in, const struct convert_options *opt, struct convert_result *res);

#endif
