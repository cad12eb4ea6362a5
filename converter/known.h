/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known.h - remembers the number that a thing was given when it was first seen, by a hash of the thing (digest.h) instead of the thing
 * itself: 16 bytes of memory each, and never more than 24 bytes times `most` in all.
 *
 *     struct known k = {.most = KNOWN_MANY};
 *     struct digest d = digest(seed, p, n), *at = known_at(&k, &d);    // NULL: no memory
 *     if (!at->id) {                                                    // not seen, or not seen for a long time
 *         d.id = ...;
 *         known_put(&k, at, &d);
 *     }
 *     known_free(&k);
 *
 * What was seen recently is remembered: whenever `most` entries have accumulated, those that were used since the previous time stay, and
 * the others are forgotten. So at least the last `most` distinct things are known, and anything that keeps being used is known for ever.
 */
#ifndef PROBING_CONVERTER_KNOWN_H
#define PROBING_CONVERTER_KNOWN_H

#include "digest.h"

#define KNOWN_MANY (3u << 18) /* fills whole tables, so that none is half empty */
#define KNOWN_SOME (3u << 17)

struct known_table {
    struct digest *slots; /* id 0: free */
    size_t mask, n;
};

struct known {
    size_t most;
    struct known_table now, before; /* before: the contents of `now` when it was last full */
};

void known_free(struct known *k);
/* Makes space for n more entries, so that adding them moves none. Returns 0 or -ENOMEM. */
int known_reserve(struct known *k, size_t n);
/* Returns the place of d, which holds its id, or 0 if d is not known. Valid until the next call. NULL: no memory. */
struct digest *known_at(struct known *k, const struct digest *d);
/* Returns 1 when d is known. */
int known_has(const struct known *k, const struct digest *d);
/* Returns 1 when d is among the last `most` entries. */
int known_is_now(const struct known *k, const struct digest *d);
void known_put(struct known *k, struct digest *at, const struct digest *d);
/* Gives d this id, whether or not it had one. Returns 0 or -ENOMEM. */
int known_set(struct known *k, const struct digest *d);

#endif
