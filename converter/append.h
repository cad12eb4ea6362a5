/* SPDX-License-Identifier: Apache-2.0 */
/*
 * append.h - what a database already holds, for those that add to it.
 *
 *     struct append a;
 *     int rc = append_load(&a, db);
 *     switch (append_state(&a, recording, bytes, &trace)) ...   // which trace of the database that recording is
 *     rc = append_forget(db, trace);                            // one that has grown: its rows go, it is converted anew
 *     rc = append_clocks(db, align);                            // machines that are in it keep their clocks (but: retime.h)
 *     append_free(&a);
 *
 * A trace is known by its recording (boot, process, when it began) and its length. One that is as long as it was is not read
 * again; one that has grown is converted anew as a whole, under a new number. SQLite result codes.
 */
#ifndef PROBING_CONVERTER_APPEND_H
#define PROBING_CONVERTER_APPEND_H

#include <sqlite3.h>

#include "align.h"
#include "keys.h"

enum append_state { APPEND_NEW, APPEND_SAME, APPEND_GROWN };

struct append {
    struct keys names;
    struct append_trace {
        uint32_t id;
        int64_t bytes;
    } * trace; /* by name */
    size_t cap;
    uint32_t last; /* the highest number of a trace */
};

int append_load(struct append *a, sqlite3 *db);
void append_free(struct append *a);
enum append_state append_state(const struct append *a, const char *recording, uint64_t bytes,
                               uint32_t *trace);
int append_forget(sqlite3 *db, uint32_t trace);
int append_clocks(sqlite3 *db, struct align *al);

#endif
