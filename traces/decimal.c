/* SPDX-License-Identifier: Apache-2.0 */
#include "decimal.h"

#include <errno.h>
#include <string.h>

int decimal_digits(const char *s, const char *end, double *out) {
    double v = 0, unit = 1;
    int n = 0, point = 0;
    for (; s < end; s++) {
        if (*s == '.' && !point) {
            point = 1;
        } else if (*s >= '0' && *s <= '9' && n < 18) {
            n++;
            if (point)
                unit /= 10;
            v = point ? v + unit * (*s - '0') : v * 10 + (*s - '0');
        } else {
            return -EINVAL;
        }
    }
    *out = v;
    return n ? 0 : -EINVAL;
}

int decimal_bounded(double v, double min, double max, double unit, uint64_t *out) {
    if (v != 0 && (v < min * (1 - 1e-9) || v > max))
        return -EINVAL;
    *out = (uint64_t)(v * unit + 0.5);
    return 0;
}

int decimal_parse(const char *text, double min, double max, double unit, uint64_t *out) {
    double v;
    return decimal_digits(text, text + strlen(text), &v) ? -EINVAL
                                                         : decimal_bounded(v, min, max, unit, out);
}
