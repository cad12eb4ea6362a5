/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retime.h - changes the times in a database after added traces have shown how clocks relate that could not be compared before
 * (align_moves()).
 *
 *     rc = retime(db, align);    // an SQLite result code; call it in the transaction that adds the traces
 *
 * It changes every time of every trace in a group that moves, and the rows of clock_boot and clock_knot of the machines in that group. What
 * is derived from times (the stored views) is made anew when the conversion ends.
 */
#ifndef PROBING_CONVERTER_RETIME_H
#define PROBING_CONVERTER_RETIME_H

#include <sqlite3.h>

#include "align.h"

int retime(sqlite3 *db, const struct align *align);

#endif
