/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks_said.h - whether the ranks of a database's runs are all there, each once.
 *
 *     rc = ranks_said(db, line, sizeof line);      // once the runs are known (tables_finish()); an SQLite result code
 *     if (*line) ... "no trace of rank 5 of 16 of run slurm:4711; 2 processes say that they are its rank 3" ...
 *
 * Of a run of which a quarter or more is missing nothing is said of that: somebody looks at some of its traces. Who says twice that it is
 * a rank is asked of processes that were in a process group: a rank's data loaders have its RANK, too.
 */
#ifndef PROBING_CONVERTER_RANKS_SAID_H
#define PROBING_CONVERTER_RANKS_SAID_H

#include <sqlite3.h>
#include <stddef.h>

int ranks_said(sqlite3 *db, char *line, size_t size);

#endif
