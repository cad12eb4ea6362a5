/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers.h - numbers and texts onto a stream, for who writes millions of them: stdio's functions take a lock for each call, and
 * printf() reads its format anew each time. The stream belongs to one thread meanwhile.
 *
 *     put_text(out, ",\"weight\":");
 *     put_int(out, weight);
 *     put_real(out, seconds);         // 0.1, 1760000000.64302: the shortest text that reads back as the same number
 */
#ifndef PROBING_TOOLS_NUMBERS_H
#define PROBING_TOOLS_NUMBERS_H

#include <stdint.h>
#include <stdio.h>

#define NUMBERS_REAL 40

static inline void put_char(FILE *f, char c) {
    putc_unlocked(c, f);
}
static inline void put_text(FILE *f, const char *text) {
    fputs_unlocked(text, f);
}
static inline void put_bytes(FILE *f, const void *p, size_t n) {
    fwrite_unlocked(p, 1, n, f);
}
void put_int(FILE *f, int64_t v);
void put_uint(FILE *f, uint64_t v);
/* The digits of v, at least n of them. */
void put_digits(FILE *f, uint64_t v, unsigned n);
/* Always with a point or an exponent; finite numbers alone. */
void put_real(FILE *f, double v);
/* The same as text, and its length. */
size_t numbers_real(double v, char text[NUMBERS_REAL]);

#endif
