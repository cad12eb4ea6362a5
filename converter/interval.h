/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interval.h - parses durations as people write them, '1 hour 30 min', for INTERVAL in a query and for the SQL function interval().
 *
 *     double seconds;
 *     if (interval_parse(text, strlen(text), &seconds) == 0) ...     // 5400.0
 */
#ifndef PROBING_CONVERTER_INTERVAL_H
#define PROBING_CONVERTER_INTERVAL_H

#include <stddef.h>

/* Returns the seconds of a unit such as "min" or "MINUTES"; 0: there is no such unit. A month is 30 days, a year 365. */
double interval_unit(const char *p, size_t n);
/* Parses the n bytes at p, such as "1 hour 30 min", "5min" or "00:05:00"; one more byte, of any value, must be readable after them.
 * Returns 0 or -EINVAL. */
int interval_parse(const char *p, size_t n, double *seconds);
/* The same, with whole months, quarters and years as *months and only the rest as seconds. months: NULL counts them as days, as interval_parse() does. */
int interval_split(const char *p, size_t n, double *months, double *seconds);

#endif
