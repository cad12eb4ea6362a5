/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event_sql.h - the SQL that gives the events of events.h, one text for each table. All have the same first columns; further columns are
 * arguments, named like the column.
 *
 *     char *sql;
 *     for (unsigned i = 0; (sql = event_sql(i, &kind)); i++) ... sqlite3_free(sql);
 */
#ifndef PROBING_TOOLS_EXPORT_EVENT_SQL_H
#define PROBING_TOOLS_EXPORT_EVENT_SQL_H

#include "event_kind.h"

enum {
    EVENT_TRACE,
    EVENT_THREAD, /* id in table thread; NULL: none, or not known */
    EVENT_TS,
    EVENT_DURATION, /* NULL: its end was not seen */
    EVENT_NAME,
    EVENT_CATEGORY,
    EVENT_TRACK,
    EVENT_UNIT,
    EVENT_VALUE,
    EVENT_FLOW,  /* a text that the linked events have too; NULL: none */
    EVENT_PLACE, /* enum export_flow */
    EVENT_ARGS
};

/* Returns NULL when there is no such text, or no memory. */
char *event_sql(unsigned i, enum export_kind *kind);

#endif
