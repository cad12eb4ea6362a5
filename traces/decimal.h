/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decimal.h - parses decimal digits with an optional fraction, as settings have them. strtod() is not used, as it follows the
 * target's locale and accepts "inf".
 *
 *     uint64_t ns;
 *     if (decimal_parse("0.01", 0.001, 3600, 1e9, &ns)) error();      // 10000000
 *
 * Pure functions: any thread.
 */
#ifndef PROBING_TRACES_DECIMAL_H
#define PROBING_TRACES_DECIMAL_H

#include <stdint.h>

#define DECIMAL_MILLION 1000000u

/* Parses the text from s up to `end`. Returns 0 or -EINVAL. */
int decimal_digits(const char *s, const char *end, double *out);
/* Stores v * unit, rounded, in *out. Returns 0, or -EINVAL when v is neither 0 nor within min..max. */
int decimal_bounded(double v, double min, double max, double unit, uint64_t *out);
/* Both of the above for a whole text. */
int decimal_parse(const char *text, double min, double max, double unit, uint64_t *out);

#endif
