/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interval.h - lengths of time as people write them, '1 hour 30 min', for INTERVAL in a query and for the function interval().
 *
 *     double seconds;
 *     if (interval_parse(text, strlen(text), &seconds) == 0) ...     // 5400.0
 */
#ifndef PROBING_CONVERTER_INTERVAL_H
#define PROBING_CONVERTER_INTERVAL_H

#include <stddef.h>

/* Seconds of a unit, "min", "MINUTES"; 0: there is no such unit. A month is 30 days, a year 365. */
double interval_unit(const char *p, size_t n);
/* "1 hour 30 min", "5min"; "00:05:00" is none. The n bytes at p, with any byte behind them. 0 or -EINVAL */
int interval_parse(const char *p, size_t n, double *seconds);

#endif
