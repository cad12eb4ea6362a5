/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks_said.h - checks whether all ranks of each run in a database are there, each once.
 *
 *     rc = ranks_said(db, line, sizeof line);      // once the runs are known (tables_finish()); an SQLite result code
 *     if (*line) ... "no trace of rank 5 of 16 of run slurm:4711; 2 processes say that they are its rank 3" ...
 *
 * When a quarter or more of a run's ranks are missing, nothing is reported about missing ones: then somebody converts some of the traces on
 * purpose. Processes that claim the same rank are reported only if they were in a process group, because the data loaders of a rank have
 * its RANK too.
 */
#ifndef PROBING_CONVERTER_RANKS_SAID_H
#define PROBING_CONVERTER_RANKS_SAID_H

#include <sqlite3.h>
#include <stddef.h>

int ranks_said(sqlite3 *db, char *line, size_t size);

#endif
