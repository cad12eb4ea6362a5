/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers: int of any size, float and complex, as repr() writes them. */
#include "object_render.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_DIGITS 128 /* CPython's, of 30 bits: about 1,150 decimal digits are written out */

/* Writes CPython's digits in decimal; destroys v. */
static void put_big(struct render *r, uint32_t *v, size_t n, unsigned bits, bool negative) {
    char text[MAX_DIGITS * 30 * 31 / 100 + 16];
    size_t at = sizeof text - 1;

    text[at] = '\0';
    while (n > 0) {
        uint64_t carry = 0;
        for (size_t i = n; i-- > 0;) {
            carry = carry << bits | v[i];
            v[i] = (uint32_t)(carry / 1000000000);
            carry %= 1000000000;
        }
        while (n > 0 && v[n - 1] == 0)
            n--;
        for (int i = 0; i < 9 && (n > 0 || carry > 0); i++, carry /= 10)
            text[--at] = (char)('0' + carry % 10);
    }
    if (negative)
        text[--at] = '-';
    obj_put(r, text + at);
}

uint32_t obj_small_int(struct render *r, uint64_t addr) {
    uint64_t word = obj_u64(r, addr + r->f->int_size), digits = word >> r->f->int_tag_shift;

    obj_ok(r, r->f->int_tag_shift == 0 || (word & 3) < 2); /* else it is negative, or no int */
    return obj_ok(r, digits <= 1) && digits == 1 ? obj_u32(r, addr + r->f->int_digits) : 0;
}

void obj_put_bool(struct render *r, uint64_t addr, const struct object_type *t UNUSED) {
    uint32_t digit = obj_small_int(r, addr);

    if (obj_ok(r, digit <= 1))
        obj_put(r, digit != 0 ? "True" : "False");
}

/* Writes an int that has too many digits: its size, and its first bits. */
static void put_huge(struct render *r, uint64_t digits, uint64_t n, bool negative) {
    unsigned bits = r->f->int_digit_bits, width = r->f->int_digit_size;
    uint64_t top = 0;

    for (unsigned i = 0; i < 2; i++) {
        uint32_t digit = 0;
        obj_get(r, digits + (n - 1 - i) * width, &digit, width);
        top = top << bits | digit;
    }
    if (obj_ok(r, top != 0))
        obj_put_format(r, "<int of %lu bits: %s0x%lx...>",
                       (n - 2) * bits + 64 - (unsigned)__builtin_clzll(top), negative ? "-" : "",
                       top);
}

void obj_put_int(struct render *r, uint64_t addr, const struct object_type *t UNUSED) {
    const struct object_fields *f = r->f;
    uint32_t digits[MAX_DIGITS] = {0};
    uint8_t bytes[sizeof digits];
    unsigned bits = f->int_digit_bits, width = f->int_digit_size;
    uint64_t word = obj_u64(r, addr + f->int_size), n = word >> f->int_tag_shift;
    bool negative = f->int_tag_shift != 0 ? (word & 3) == 2 : (int64_t)word < 0;

    if (f->int_tag_shift != 0)
        obj_ok(r, (word & 3) != 3);
    else
        n = negative ? 0 - word : word;
    if (!obj_ok(r, n <= 1ull << 32))
        return;
    if (n > MAX_DIGITS) {
        put_huge(r, addr + f->int_digits, n, negative);
        return;
    }
    obj_get(r, addr + f->int_digits, bytes, n * width);
    for (size_t i = 0; i < n; i++) {
        memcpy(&digits[i], bytes + i * width, width);
        obj_ok(r, digits[i] >> bits == 0);
    }
    if (!obj_ok(r, n <= 1 || digits[n - 1] != 0))
        return;
    if (n == 0 || (n == 1 && digits[0] == 0))
        obj_put(r, "0");
    else
        put_big(r, digits, n, bits, negative);
}

/* Whether the text reads back as v, in a type whose significand has that many bits. */
static bool reads_back(const char *text, double v, int mantissa) {
    double back = strtod(text, NULL);
    int exponent;

    if (mantissa >= 53)
        return back == v;
    if (mantissa == 24)
        return strtof(text, NULL) == (float)v;
    frexp(v, &exponent);
    if (mantissa == 11 && exponent < -13) /* float16's subnormals */
        exponent = -13;
    return fabs(back - v) < ldexp(0.5, exponent - mantissa);
}

/* The shortest digits that read back, laid out as Python does. */
void obj_put_float(struct render *r, double v, int mantissa, bool point) {
    char text[40], digits[24];
    int n = 0, exponent, precision = 0;

    if (!isnan(v) && signbit(v))
        obj_put(r, "-");
    if (!isfinite(v)) {
        obj_put(r, isnan(v) ? "nan" : "inf");
        return;
    }
    v = fabs(v);
    do
        snprintf(text, sizeof text, "%.*e", precision, v);
    while (v != 0 && !reads_back(text, v, mantissa) && ++precision < 17);
    exponent = atoi(strchr(text, 'e') + 1);
    for (const char *p = text; *p != 'e' && n < 20; p++) /* whatever the locale's point is */
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    if (exponent < -4 || exponent >= 16) {
        obj_put_bytes(r, digits, 1);
        if (n > 1) {
            obj_put(r, ".");
            obj_put_bytes(r, digits + 1, (size_t)n - 1);
        }
        obj_put_format(r, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    if (exponent < 0) {
        obj_put(r, "0.");
        obj_put_bytes(r, "000", (size_t)(-exponent - 1));
        obj_put_bytes(r, digits, (size_t)n);
        return;
    }
    for (int i = 0; i <= exponent; i++)
        obj_put_bytes(r, i < n ? &digits[i] : "0", 1);
    if (n > exponent + 1) {
        obj_put(r, ".");
        obj_put_bytes(r, digits + exponent + 1, (size_t)(n - exponent - 1));
    } else if (point) {
        obj_put(r, ".0");
    }
}

void obj_put_real(struct render *r, uint64_t addr, const struct object_type *t UNUSED) {
    double v;

    if (obj_get(r, addr + r->f->float_value, &v, sizeof v))
        obj_put_float(r, v, 53, true);
}

void obj_put_imaginary(struct render *r, uint64_t addr, const struct object_type *t UNUSED) {
    double v[2];

    if (obj_get(r, addr + r->f->complex_value, v, sizeof v))
        obj_put_complex(r, v[0], v[1], 53);
}

void obj_put_complex(struct render *r, double re, double im, int mantissa) {
    if (re == 0 && !signbit(re)) {
        obj_put_float(r, im, mantissa, false);
        obj_put(r, "j");
        return;
    }
    obj_put(r, "(");
    obj_put_float(r, re, mantissa, false);
    if (!signbit(im) || isnan(im))
        obj_put(r, "+");
    obj_put_float(r, im, mantissa, false);
    obj_put(r, "j)");
}
