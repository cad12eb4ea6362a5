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
 * Tables of traces are read directly from their blocks: `samples`, with names resolved, `stacks`, and every record type of
 * traces/records.def under its name (`cpu`, `comm`, ...). A block is not decompressed when its hint shows that it lies outside of the
 * requested time or ranks. With .sql the path is a database of probing-convert, and the rows are those of a SELECT.
 *
 * Each stream opens its files anew and shares nothing with another one: different streams may be used by different threads at the same
 * time, each stream by one thread at a time. No function needs Python or its GIL; a call in Python's main thread lets its handlers of
 * signals run, and ends with -EINTR if one raises (arrow_stop.h). Memory: a batch, the names, and 80 bytes for each block of the current
 * file.
 *
 * The figures for many machines are in ARCHITECTURE.md (a sample takes 7 bytes of a long recording, 25 of one of half a minute). The clocks are
 * aligned by one process first (probing_align(): it reads the process of each trace, and a bounded number of collectives). The result is a
 * database with a few points of each machine's clock, which is given to streams, `probing convert --clocks`, the data set and Spark's
 * partitions. What lies in object stores is read by ranges (source.h, probing/_remote.py): the seek table at the end says where the hints
 * are, and the hints say what each block holds.
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
 * Checks the request and makes a stream for it. Returns 0; -ENOENT and the like: a path cannot be opened; -EINVAL: no such table or column;
 * -EBADMSG and other errors of reader.h: none of the files is a trace. After an error `error` holds a sentence. *notes (`notes` may be
 * NULL) collects what is worth telling about files: that a damaged or useless file was read in part or skipped is not an error of the
 * stream.
 */
int probing_stream(const struct probing_request *rq, struct ArrowArrayStream *out,
                   struct arrow_notes **notes, char *error, size_t n);
/* Copies the lines "FILE: what is wrong" into buf, as far as they fit, and returns their full length. Any thread. */
size_t probing_notes_text(struct arrow_notes *notes, char *buf, size_t n);
void probing_notes_free(struct arrow_notes *notes);
/* Returns the tables of traces as lines "NAME<TAB>what it is", in static storage. */
const char *probing_tables(void);
/* Sets the functions that read paths with a scheme ("s3://...", source.h): the size, and n bytes at an offset; both return -errno on
 * failure. Any thread may call them. Call this once. */
void probing_set_remote(int64_t (*size)(const char *url),
                        int64_t (*read)(const char *url, uint64_t off, void *to, size_t n));
/* Returns 1 for an SQLite database, 0 for anything else, or -errno. */
int probing_is_database(const char *path);

/*
 * Aligns the clocks of the traces' machines as probing-convert does (align.h), and writes the result to the database `out`: tables
 * clock_boot and clock_knot, view clock_alignment, and in table trace_file the run and attempt of each trace, as in a database made from
 * everything it has seen. Where `out` exists already, the boots in it keep their times, and others are mapped onto them. Of each trace this
 * reads only what identifies its process and, for several machines, its collectives. Returns 0, or -errno with a sentence in `error`.
 */
int probing_align(const char *const *paths, size_t npaths, uint32_t flags, const char *out,
                  char *error, size_t n);

/* Returns zeroed memory for the struct (a stream or a schema) that a capsule will hold. */
void *probing_capsule_memory(size_t n);
/* Destructors of capsules: release what the capsule holds, unless somebody has taken it, and free the struct. They get the pointer from the
 * Python in this process. */
void probing_capsule_stream(void *capsule);
void probing_capsule_schema(void *capsule);
#pragma GCC visibility pop

#endif
