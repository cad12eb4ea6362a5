/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array.h - growable arrays: makes room for one more element, and binary search in a sorted one.
 *
 *     if (array_grow(&v, n, sizeof *v) == 0)
 *         v[n++] = element;
 *     size_t first = ARRAY_BEFORE(i, n, v[i].end <= addr);
 */
#ifndef PROBING_TRACES_ARRAY_H
#define PROBING_TRACES_ARRAY_H

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Number of leading elements, of n sorted ones, for which the condition `before` holds; `before` names the element by its index i. */
#define ARRAY_BEFORE(i, n, before)                                                                 \
    ({                                                                                             \
        size_t low_ = 0, high_ = (n);                                                              \
        while (low_ < high_) {                                                                     \
            size_t i = low_ + (high_ - low_) / 2;                                                  \
            if (before)                                                                            \
                low_ = i + 1;                                                                      \
            else                                                                                   \
                high_ = i;                                                                         \
        }                                                                                          \
        low_;                                                                                      \
    })

/*
 * Makes room for one more element in *array, which points to n elements of `size` bytes and was allocated by malloc(), or is NULL when n is
 * 0. The capacity is always the next power of two, so nobody has to store it. Returns 0, or -ENOMEM with *array unchanged.
 */
static inline int array_grow(void *array, size_t n, size_t size) {
    void *v, *more;

    if (n & (n - 1))
        return 0;
    memcpy(&v, array, sizeof v); /* `array` points to a pointer of any type */
    more = realloc(v, (n ? n * 2 : 1) * size);
    if (!more)
        return -ENOMEM;
    memcpy(array, &more, sizeof more);
    return 0; /* cppcheck-suppress memleak ; *array has it */
}

#endif
