/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vtab.h - presents a trace as SQLite tables, by the virtual-table module `probing_trace`.
 *
 *     CREATE VIRTUAL TABLE temp.s USING probing_trace('trace.zst', 'sample');
 *     SELECT tid, sum(cpu_us) FROM s WHERE ts BETWEEN 5e12 AND 6e12 GROUP BY tid;
 *
 * The columns are the fields of the record in records.def, with the same names, plus two hidden ones: `epoch` (dictionary ids are valid
 * within one epoch) and `block` (index of the block in the file). The types of fields become these types of columns:
 *
 *     U S D T TUS ID KEY REF   INTEGER (64 bits; unsigned values above 2^63 come out negative)
 *     F                        REAL
 *     STR TXT                  TEXT, UTF-8
 *     BIN                      BLOB
 *     REFS US                  TEXT: a JSON array of integers
 *
 * A third argument selects the trace in a file of several joined traces: 1 (the default), 2 ...
 *
 * Times are as recorded: CLOCK_MONOTONIC, ns. A comparison of the first time column with a constant skips whole blocks, without
 * decompressing them, by the times in their hints. Damaged blocks are left out.
 *
 * With `shared` the module does not open the named file (which is then only a name), but uses the reader that `shared` refers to when a
 * query begins, so that one table serves one trace after the other. Without it (in the loadable extension) a table opens its file.
 */
#ifndef PROBING_CONVERTER_VTAB_H
#define PROBING_CONVERTER_VTAB_H

#include "dict.h"
#include "strips.h"

struct sqlite3;

/* Additional bits of `types`: what is made from records of data besides their own rows. They use numbers that no record of data has. The
 * first three are about torch's calls. */
#define VTAB_STEPS (1ull << 0) /* the steps */
/* of the calls, only those of the last steps (torch_tables.h) */
#define VTAB_LAST_CALLS (1ull << TRACE_schema)
#define VTAB_NUMBERS    (1ull << TRACE_torch_name) /* the step numbers in other records */
/* Samples: their rows, and their sums by stack and by function. */
#define VTAB_ROWS (1ull << TRACE_stack)
#define VTAB_SUMS (1ull << TRACE_string)
/* The stacks of samples. Without this bit no stack is read, and column stack is NULL. */
#define VTAB_STACKS (1ull << TRACE_native_file)
/* Functions and their sums, when no stack is asked for: tables stack, part, frame and stack_total stay empty. Without VTAB_SUMS, a live
 * question's sums are those of all traces together, not of each trace. */
#define VTAB_FUNCTIONS (1ull << TRACE_code_name)
/* Process groups get no rows, although they are in READER_ALWAYS: each of 10,000 ranks lists the members of the group that contains them all. */
#define VTAB_NO_GROUPS (1ull << TRACE_frame)
/* Only the Python frames of stacks: to resolve the native frames of a trace, with their files and names, takes longer than everything else. */
#define VTAB_PYTHON (1ull << TRACE_module)

/* No view's rows are stored (schema/66_views_stored.sql): which collectives hang takes longer to find out than a part of the time to convert. */
#define VTAB_NOT_STORED (1ull << TRACE_clock)
/* Only the run and the attempt that a trace belongs to: its row of trace_file, how often its launcher says that it started it again and,
 * when no launcher names the job, the groups that it is in. Nothing else gets rows, not even what is otherwise always stored: a long trace has, for example, a row of table clock for every ten
 * seconds. */
#define VTAB_PLACES (1ull << TRACE_end)

struct vtab_shared {
    struct reader *reader;
    struct epochs *epochs;
    uint64_t lo, hi,
        types; /* only data records of these types (and READER_ALWAYS) from lo to hi; all 0: everything */
    size_t first; /* first block that is read */
    /* rows of the current record type in the blocks before it, so that rowid continues */
    long long rows_before;
    /* STRIPS_TYPES rows of blocks that were read already; may be NULL */
    const struct strips *strips;
};

/* Registers the module. `shared` points to the pointer to the current struct; it is borrowed and may be NULL. Returns an SQLite result code. */
int vtab_register(struct sqlite3 *db, const struct vtab_shared *const *shared);

#endif
