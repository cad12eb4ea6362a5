/* SPDX-License-Identifier: Apache-2.0 */
/*
 * float16.h - converts 16-bit floating-point numbers, as PyTorch and numpy store them, from their bits.
 *
 *     double v = float16_value(bits);       // IEEE 754 binary16
 *     double v = bfloat16_value(bits);      // the upper half of a float
 *
 * Done by hand, as compilers before GCC 12 have no type for either. Pure functions.
 */
#ifndef PROBING_TRACES_FLOAT16_H
#define PROBING_TRACES_FLOAT16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline double float16_value(uint16_t h) {
    int exponent = h >> 10 & 31;
    double v = exponent == 31  ? ((h & 1023) != 0 ? (double)NAN : (double)INFINITY)
               : exponent == 0 ? ldexp(h & 1023, -24)
                               : ldexp((h & 1023) + 1024, exponent - 25);
    return (h & 0x8000) != 0 ? -v : v;
}

static inline double bfloat16_value(uint16_t b) {
    uint32_t bits = (uint32_t)b << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

#endif
