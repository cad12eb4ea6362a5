/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.h - converts any number of traces into one SQLite database.
 *
 *     struct convert_options opt = {.out = "out.db", .say = say};
 *     struct convert_result res;
 *     int err = convert(&inputs, &opt, &res);
 *
 * Memory does not grow with the number of samples: it holds the distinct stacks, the names, and 80 bytes for each block of the file. The
 * database appears under its name only when it is complete. convert() blocks; one conversion at a time in a process (because of libdw and
 * the environment).
 */
#ifndef PROBING_CONVERTER_CONVERT_H
#define PROBING_CONVERTER_CONVERT_H

#include <stdint.h>

#include "inputs.h"
#include "when.h"

struct convert_options {
    const char *out; /* NULL: a database without a name, returned in convert_result.db */
    int force;       /* replace an existing database */
    int append; /* add to an existing database: traces that it holds are not converted again. On failure it stays as it was */
    int cache; /* with append, for a database of our own: it holds these inputs and nothing else (otherwise -ESTALE); waits for another
                * program that is adding to it; the database need not survive a crash of the machine */
    const char *
        asked; /* with cache: only views that this SQL can refer to are needed (schema_part.h); NULL: all views */
    const char *
        clocks; /* a database whose alignment of clocks is used for the machines in it; NULL: none */
    struct when since, until; /* the time to convert; WHEN_NOT: from the beginning, to the end */
    uint64_t types;           /* the record types of data to convert (when.h); 0: all */
    uint64_t
        need; /* the record types of data (vtab.h) that become rows; blocks with none of them are not even read. Everything that is said of
               * the traces themselves stays complete, except for what is lost of them; 0: all */
    unsigned
        threads; /* number of threads, including the one that writes the database; 0: one for each processor. It does not change the rows */
    const char *
        names_in; /* the user's own folder in which symbols of ELF files are cached (symbols_kept.h); NULL: none */
    int debuginfod; /* let libdw fetch debug information from the network */
    /* Called with one line about an input that cannot be used (fatal), is damaged or is cut off. May be NULL. */
    void (*say)(void *ctx, const char *file, const char *line);
    /* Called now and then with the fraction of the input that is done, 0..1; a nonzero result stops the conversion (-EINTR). May be NULL. */
    int (*tick)(void *ctx, double part);
    void *ctx;
};

struct sqlite3;

struct convert_result {
    unsigned traces;  /* number of traces converted */
    unsigned damaged; /* how many of them have blocks missing or cut off */
    unsigned open;    /* how many of them have no end: still being recorded, or killed */
    unsigned failed;  /* number of inputs that gave nothing */
    unsigned there;   /* with append: number of traces that the database already had, unchanged */
    unsigned runs;    /* number of different runs (view runs) */
    uint64_t records, lost, bytes_in, bytes_out;
    uint64_t samples; /* ticks; the equal samples of an idle thread are one record for many ticks */
    struct sqlite3 *
        db; /* for a database without a name: its handle, which the caller queries and closes. However the program ends, nothing of such a
             * database remains. The attached schema `python` is the same database. For a cache that existed: also the handle, without
             * `python`. */
    char error[4608]; /* why it failed, as a sentence */
};

/* Returns 0 when a database was written, else -errno with a sentence in res->error; then there is no new file. -ENODATA: no input could be used. */
int convert(const struct inputs *in, const struct convert_options *opt, struct convert_result *res);

#endif
