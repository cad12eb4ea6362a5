/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array.h - arrays: place for one more element, and the search in one that is in order.
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

/* How many of n elements, which are in order, come first: those for which `before`, said with their index i, is true. */
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
 * Makes place for one more behind the n that there are in *array, a pointer to elements of that size, of malloc() or NULL. The capacity is
 * the next power of two, so nobody has to keep it. 0 or -ENOMEM, and *array is as it was.
 */
static inline int array_grow(void *array, size_t n, size_t size) {
    void *v, *more;

    if (n & (n - 1))
        return 0;
    memcpy(&v, array, sizeof v); /* a pointer to whatever it is */
    more = realloc(v, (n ? n * 2 : 1) * size);
    if (!more)
        return -ENOMEM;
    memcpy(array, &more, sizeof more);
    return 0; /* cppcheck-suppress memleak ; *array has it */
}

#endif
