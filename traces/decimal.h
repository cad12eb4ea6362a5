/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decimal.h - decimal digits with an optional fraction, as settings have them: strtod() would follow the target's locale and take
 * "inf".
 *
 *     uint64_t ns;
 *     if (decimal_parse("0.01", 0.001, 3600, 1e9, &ns)) error();      // 10000000
 *
 * Pure. Any thread.
 */
#ifndef PROBING_TRACES_DECIMAL_H
#define PROBING_TRACES_DECIMAL_H

#include <stdint.h>

#define DECIMAL_MILLION 1000000u

/* The text up to `end`. 0 or -EINVAL. */
int decimal_digits(const char *s, const char *end, double *out);
/* *out = v * unit, rounded. 0; -EINVAL: not 0 and outside min..max. */
int decimal_bounded(double v, double min, double max, double unit, uint64_t *out);
/* Both. */
int decimal_parse(const char *text, double min, double max, double unit, uint64_t *out);

#endif
