/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vtab.h - a trace as SQLite tables: the virtual-table module `probing_trace`.
 *
 *     CREATE VIRTUAL TABLE temp.s USING probing_trace('trace.zst', 'sample');
 *     SELECT tid, sum(cpu_us) FROM s WHERE ts BETWEEN 5e12 AND 6e12 GROUP BY tid;
 *
 * The columns are the fields of the record in records.def, under their names, plus the hidden ones
 * `epoch` (dictionary ids hold within one) and `block` (index of the block in the file). What the
 * columns give:
 *
 *     U S D T TUS ID KEY REF   INTEGER (64 bits; unsigned values above 2^63 come out negative)
 *     F                        REAL
 *     STR TXT                  TEXT, UTF-8
 *     BIN                      BLOB
 *     REFS US                  TEXT: a JSON array of integers
 *
 * A third argument says which trace of the file, where several were joined: 1 (the default), 2 ...
 *
 * Times are as recorded: CLOCK_MONOTONIC, ns. A comparison of the first time column with a constant
 * skips whole blocks without decompressing them, by what their hints say of time. Damaged blocks are left out.
 *
 * With `shared` the module reads that reader in place of opening the file named (which is then only
 * a name): the one that is there when a query begins, so that a table serves one trace after the other. Without (the loadable extension), a table opens its file.
 */
#ifndef PROBING_CONVERTER_VTAB_H
#define PROBING_CONVERTER_VTAB_H

#include "dict.h"
#include "strips.h"

struct sqlite3;

/* Among `types`, what is made of records of data besides their own rows: no such record has these numbers. Of torch's calls: */
#define VTAB_STEPS (1ull << 0) /* the steps */
/* of the calls those of the last steps alone (torch_tables.h) */
#define VTAB_LAST_CALLS (1ull << TRACE_schema)
#define VTAB_NUMBERS    (1ull << TRACE_torch_name) /* which step other records belong to */
/* Of samples: their rows, and their sums by stack and by function */
#define VTAB_ROWS (1ull << TRACE_stack)
#define VTAB_SUMS (1ull << TRACE_string)
/* And what a stack is: without, none is read, and column stack is NULL */
#define VTAB_STACKS (1ull << TRACE_native_file)
/* Functions and their sums, where no stack is asked for: tables stack, part, frame and stack_total stay empty. Without VTAB_SUMS a live
 * question's are those of all traces together, and not of each */
#define VTAB_FUNCTIONS (1ull << TRACE_code_name)
/* Process groups are not made rows, though they are READER_ALWAYS: each of 10,000 ranks tells the members of the one that all are in */
#define VTAB_NO_GROUPS (1ull << TRACE_frame)
/* Of stacks the Python frames alone: to find a trace's native ones, their files and names, takes longer than all else of it */
#define VTAB_PYTHON (1ull << TRACE_module)

/* Which run a trace is of, and which attempt: its row of trace_file, and where no launcher says the job the groups that it is in. Nothing else is
 * made a row, not even what a trace says of itself in any case: of a long one that has a row of table clock every ten seconds */
#define VTAB_PLACES (1ull << TRACE_end)

struct vtab_shared {
    struct reader *reader;
    struct epochs *epochs;
    uint64_t lo, hi,
        types; /* only records of data from lo to hi, of these types (and READER_ALWAYS); all 0: all of them */
    size_t first;                /* blocks before it are left out */
    long long rows_before;       /* of the record that is read, in those: rowid goes on */
    const struct strips *strips; /* STRIPS_TYPES, of blocks that somebody has read; or NULL */
};

/* Registers the module; `shared`, where the current one is named, is borrowed, may be NULL. An SQLite result code. */
int vtab_register(struct sqlite3 *db, const struct vtab_shared *const *shared);

#endif
