/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql_numbers.h - SQL functions of numbers that SQLite lacks, and aggregates of pairs and bits.
 *
 *     sql_numbers_register(db);
 *     SELECT corr(rank, duration), regr_slope(duration, step), count_if(duration > 1) FROM torch_trace;
 *
 *     cbrt, cot, even, factorial, gcd, lcm, xor, bit_count, trunc(x, places), isnan, isinf, isfinite, nanvl, nvl2(x, then, else)
 *     arrow_typeof(x)                     Int64, Float64, Utf8, Binary or Null
 *     corr, covar_samp, covar_pop(y, x), regr_slope, regr_intercept, regr_r2, regr_count(y, x)
 *     bit_and, bit_or, bit_xor(n), product(x), geomean(x), count_if(x)
 *
 * Aggregates leave out NULL and texts; with a pair, both must be numbers.
 */
#ifndef PROBING_CONVERTER_SQL_NUMBERS_H
#define PROBING_CONVERTER_SQL_NUMBERS_H

#include <sqlite3.h>

/* Returns SQLITE_OK, or SQLite's error. */
int sql_numbers_register(sqlite3 *db);

#endif
