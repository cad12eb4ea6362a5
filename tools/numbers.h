/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers.h - writes numbers and texts to a stream quickly, for output with millions of them: stdio's functions take a lock for each call,
 * and printf() parses its format anew each time. No other thread may use the stream meanwhile.
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
/* Writes v with at least n digits. */
void put_digits(FILE *f, uint64_t v, unsigned n);
/* Writes v always with a point or an exponent; for finite numbers only. */
void put_real(FILE *f, double v);
/* Formats v in the same way, and returns the length of the text. */
size_t numbers_real(double v, char text[NUMBERS_REAL]);

#endif
