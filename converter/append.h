/* SPDX-License-Identifier: Apache-2.0 */
/*
 * append.h - what a database already holds, for those that add to it.
 *
 *     struct append a;
 *     int rc = append_load(&a, db, 0);
 *     const struct append_trace *was = append_find(&a, recording);  // which trace of the database that recording is; NULL: none
 *     rc = append_forget(db, trace);     // one that has grown, and cannot be gone on with (resume.h): its rows go, it is converted anew
 *     rc = append_reopen(db, trace);     // one that can: what was said of its end goes
 *     rc = append_clocks(db, align);     // machines that are in it keep their clocks (but: retime.h)
 *     append_free(&a);
 *
 * A trace is known by its recording (boot, process, when it began) and its length. One that is as long as it was is not read
 * again. SQLite result codes.
 */
#ifndef PROBING_CONVERTER_APPEND_H
#define PROBING_CONVERTER_APPEND_H

#include <sqlite3.h>

#include "align.h"
#include "keys.h"
#include "resume.h"

enum append_state { APPEND_NEW, APPEND_SAME, APPEND_GROWN };

struct append {
    struct keys names;
    struct append_trace {
        uint32_t id;
        int64_t bytes;
        struct resume at;
        struct resume_rows rows;
        void *kept; /* as resolver_save(), or of a database without stacks epochs_save(), gave it */
        size_t nkept, nbase; /* nbase: what APPEND_ADDRESSES has of it, the first bytes */
        void *dictionary;    /* as epochs_keep() gave it */
        size_t ndictionary;
    } * trace; /* by name */
    size_t cap;
    uint32_t last; /* the highest number of a trace */
    int is_cache;
    uint64_t *tids;
};

/* What a live question's database keeps of a trace besides, in rows of table trace_read with numbers of their own: it is large, and written again seldom. */
enum append_more { APPEND_ADDRESSES = 1, APPEND_DICTIONARY };
#define APPEND_MORE_BELOW (-(1 << 20)) /* kept_numbers.c has those from here to 0 */

/* is_cache: the database is in the user's own cache folder, where nobody else writes (a dictionary of another's is not taken). */
int append_load(struct append *a, sqlite3 *db, int is_cache);
void append_free(struct append *a);
const struct append_trace *append_find(const struct append *a, const char *recording);
/* Whether it holds a trace that is none of these. */
int append_has_others(const struct append *a, const struct align *al, size_t ntraces);
int append_forget(sqlite3 *db, uint32_t trace);
int append_reopen(sqlite3 *db, uint32_t trace);
/* How far a trace was read, so that it can be gone on with. */
int append_keep(sqlite3 *db, uint32_t trace, const struct resume *at, const void *kept, size_t n);
int append_keep_more(sqlite3 *db, uint32_t trace, enum append_more what, const void *kept,
                     size_t n);
int append_clocks(sqlite3 *db, struct align *al);

#endif
