/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_read.h - traces, and databases of probing-convert, as Arrow streams: what libprobing-read.so exports. `import probing`
 * calls it (agent/python_api/probing/_arrow.py); any program that knows the Arrow C stream interface can.
 *
 *     const char *paths[] = {"trace.zst"};
 *     struct probing_request rq = {.paths = paths, .npaths = 1, .table = "samples", .from = INT64_MIN, .until = INT64_MAX};
 *     struct ArrowArrayStream stream;
 *     char error[512];
 *     if (probing_stream(&rq, &stream, NULL, error, sizeof error) == 0) ... stream.get_next(&stream, &array) ...
 *     stream.release(&stream);
 *
 * Tables of traces are read straight from their blocks: `samples`, with names resolved, `stacks`, and every record of traces/records.def
 * under its name (`cpu`, `comm`, ...). What is outside of the time or of the ranks that were asked for is not decompressed where its
 * block can be told from its hint. With .sql the path is a database of probing-convert, and the rows are those of a SELECT.
 *
 * Each stream opens its files anew and shares nothing with another: streams may be used by different threads at a time, one by
 * one. No function needs Python or its GIL. Memory: a batch, the names, and 80 bytes a block of the file at hand.
 *
 * ARCHITECTURE.md's figures for many machines: 10,000 ranks at 7 bytes a sample of a long recording are 0.6 TB a day, at the 25 of half-minute
 * ones 2.2 TB. Measured by `make bench`, part arrow, on a busy two-core machine: 10 to 1,000 fleet traces of 2,900 rows, functions named,
 * 4.3 ms each, of which 0.5 to 0.7 are for aligning (and some 0.3 since, for which run each is of), straight to within 5 %, so 43 s +- 2
 * for 10,000 of them; 1.6e6 rows a second and core of
 * five-minute traces. Clocks are aligned by one process first (probing_align: whose each trace is, and a bounded number of collectives): a
 * database of some knots for each boot, which streams, `probing convert --clocks`, the data set and Spark's partitions are given. What lies in
 * object stores is read by ranges (source.h, probing/_remote.py): the seek table at the end says where the hints are, they what a block holds.
 */
#ifndef PROBING_CONVERTER_ARROW_READ_H
#define PROBING_CONVERTER_ARROW_READ_H

#include <stddef.h>
#include <stdint.h>

#include "arrow_abi.h"
#include "arrow_request.h"

struct arrow_notes;

#pragma GCC visibility push(default)
/*
 * Checks the request and makes a stream for it. 0; -ENOENT and the like: a path cannot be opened; -EINVAL: no such table or column; -EBADMSG
 * and others of reader.h: none of the files is a trace; `error` then holds a sentence. *notes (may be NULL) is for what is worth telling about
 * files: that a damaged or useless one was read in part or passed over is no error of the stream.
 */
int probing_stream(const struct probing_request *rq, struct ArrowArrayStream *out,
                   struct arrow_notes **notes, char *error, size_t n);
/* Lines "FILE: what is wrong", copied into buf as far as they fit; the length that they have. Any thread. */
size_t probing_notes_text(struct arrow_notes *notes, char *buf, size_t n);
void probing_notes_free(struct arrow_notes *notes);
/* The tables of traces: lines "NAME<TAB>what it is". Static. */
const char *probing_tables(void);
/* Who reads paths with a scheme ("s3://...", source.h): the size, and n bytes at an offset, or -errno. Any thread may call them. Once. */
void probing_set_remote(int64_t (*size)(const char *url),
                        int64_t (*read)(const char *url, uint64_t off, void *to, size_t n));
/* 1: a database of SQLite; 0: not; -errno. */
int probing_is_database(const char *path);

/*
 * Aligns the clocks of the machines that the traces are of, as probing-convert does (align.h), into a database: tables clock_boot and clock_knot,
 * view clock_alignment; in its table trace_file run and attempt of each trace, as in a database of all that it has seen. Boots that `out`,
 * where it is there already, has keep their time; others are laid on them. Reads what says whose each
 * trace is and, of several machines, their collectives. 0; -errno and a sentence in `error`.
 */
int probing_align(const char *const *paths, size_t npaths, uint32_t flags, const char *out,
                  char *error, size_t n);

/* Zeroed memory for a struct that a capsule is to hold: a stream or a schema. */
void *probing_capsule_memory(size_t n);
/* A capsule's destructor: releases what it holds, if nobody has taken that, and the memory of the struct. They ask the Python that is in
 * this process for the pointer. */
void probing_capsule_stream(void *capsule);
void probing_capsule_schema(void *capsule);
#pragma GCC visibility pop

#endif
