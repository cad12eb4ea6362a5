/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retime.h - the times of a database's rows, when what was added tells how clocks lie that could not be compared before (align_moves).
 *
 *     rc = retime(db, align);    // an SQLite result code; in the transaction of what is added
 *
 * Every time of every trace of a group that moves is changed, its machines' rows of clock_boot and clock_knot with them. What follows from
 * times (stored views) is made anew when the conversion ends.
 */
#ifndef PROBING_CONVERTER_RETIME_H
#define PROBING_CONVERTER_RETIME_H

#include <sqlite3.h>

#include "align.h"

int retime(sqlite3 *db, const struct align *align);

#endif
