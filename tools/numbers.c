/* SPDX-License-Identifier: Apache-2.0 */
#include "numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Writes the digits of v, at least `least` of them, so that they end before `end`. Returns where they begin. */
static char *digits(uint64_t v, unsigned least, char *end) {
    for (char *stop = end - least; v || end > stop; v /= 10)
        *--end = (char)('0' + v % 10);
    return end;
}

void put_digits(FILE *f, uint64_t v, unsigned n) {
    char text[24], *end = text + sizeof text, *p = digits(v, n, end);
    put_bytes(f, p, (size_t)(end - p));
}

void put_uint(FILE *f, uint64_t v) {
    put_digits(f, v, 1);
}

void put_int(FILE *f, int64_t v) {
    if (v < 0)
        put_char(f, '-');
    put_digits(f, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, 1);
}

/* Writes v by printf(), with 15 to 17 digits: the fewest that read back as v. It is slow. */
static size_t any_real(double v, char *text) {
    for (int n = 15; n <= 17; n++) {
        snprintf(text, NUMBERS_REAL, "%.*g", n, v);
        if (strtod(text, NULL) == v)
            break;
    }
    if (isfinite(v) && !strpbrk(text, ".e"))
        strcat(text, ".0");
    return strlen(text);
}

/*
 * Writes the same text faster for numbers from 1e-4 to 1e15, by integers of 128 bits. v is m / 2^shift. With a number of decimals it is written
 * as n / 10^decimals, where n is m * 10^decimals / 2^shift, rounded as printf() does. This reads back as v if it differs from v by less than half
 * of the distance between v and its neighbours. At powers of two the neighbours are not equally far away: these are left to printf().
 */
size_t numbers_real(double v, char text[NUMBERS_REAL]) {
    static const double power[] = {1e-4, 1e-3, 1e-2, 1e-1, 1e0,  1e1,  1e2,  1e3,  1e4, 1e5,
                                   1e6,  1e7,  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14};
    double a = fabs(v);
    int e, x = -4;

    if (!(a >= 1e-4 && a < 1e15))
        return any_real(v, text);
    uint64_t m = (uint64_t)ldexp(frexp(a, &e), 53);
    if (m == (uint64_t)1 << 52)
        return any_real(v, text);
    while (x < 14 && a >= power[x + 5]) /* 10^x is the value of the first digit's place */
        x++;
    unsigned shift = (unsigned)(53 - e); /* 3 to 66 */
    unsigned __int128 unit = (unsigned __int128)1 << shift, scale = 1;
    uint64_t n = 0;
    int decimals = 14 - x;
    for (int i = 0; i < decimals; i++)
        scale *= 10;
    for (int last = decimals + 2;; decimals++, scale *= 10) {
        unsigned __int128 scaled = m * scale, rest = scaled & (unit - 1);
        int up = rest > unit / 2 || (rest == unit / 2 && (scaled >> shift & 1));
        n = (uint64_t)(scaled >> shift) + (uint64_t)up;
        if (decimals == last || (up ? unit - rest : rest) * 2 < scale)
            break;
    }
    for (; decimals > 1 && n % 10 == 0; decimals--)
        n /= 10;
    if (decimals == 0) { /* none of the digits is behind the point: add a 0 there */
        n *= 10;
        decimals = 1;
    }
    char number[24], *end = number + sizeof number;
    char *p = digits(n, (unsigned)decimals + 1, end);
    size_t whole = (size_t)(end - p) - (size_t)decimals, sign = v < 0;
    text[0] = '-';
    memcpy(text + sign, p, whole);
    text[sign + whole] = '.';
    memcpy(text + sign + whole + 1, p + whole, (size_t)decimals);
    text[sign + whole + 1 + (size_t)decimals] = '\0';
    return sign + whole + 1 + (size_t)decimals;
}

void put_real(FILE *f, double v) {
    char text[NUMBERS_REAL];
    put_bytes(f, text, numbers_real(v, text));
}
