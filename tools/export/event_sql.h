/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event_sql.h - the SQL that gives the events of events.h, one text for each table: all have the same first columns, what follows are
 * arguments under the column's name.
 *
 *     char *sql;
 *     for (unsigned i = 0; (sql = event_sql(i, &kind)); i++) ... sqlite3_free(sql);
 */
#ifndef PROBING_TOOLS_EXPORT_EVENT_SQL_H
#define PROBING_TOOLS_EXPORT_EVENT_SQL_H

#include "event_kind.h"

enum {
    EVENT_TRACE,
    EVENT_THREAD, /* table thread; NULL: none, or not known */
    EVENT_TS,
    EVENT_DURATION, /* NULL: not seen to end */
    EVENT_NAME,
    EVENT_CATEGORY,
    EVENT_TRACK,
    EVENT_UNIT,
    EVENT_VALUE,
    EVENT_FLOW,  /* a text that its other ends have too; NULL: none */
    EVENT_PLACE, /* enum export_flow */
    EVENT_ARGS
};

/* NULL: there is no such, or no memory. */
char *event_sql(unsigned i, enum export_kind *kind);

#endif
