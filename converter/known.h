/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known.h - the number that something was given when it was first seen, found again by a hash of it (digest.h), without keeping the thing
 * itself: 16 bytes of memory each, and never more than 24 bytes times `most` in all.
 *
 *     struct known k = {.most = KNOWN_MANY};
 *     struct digest d = digest(seed, p, n), *at = known_at(&k, &d);    // NULL: no memory
 *     if (!at->id) {                                                    // not seen, or not for long
 *         d.id = ...;
 *         known_put(&k, at, &d);
 *     }
 *     known_free(&k);
 *
 * What was seen last is remembered: each time that `most` are there, those that were asked for since the time before that stay, and the others
 * are forgotten. So at least the last `most` distinct ones are known, and what is asked for again and again for ever.
 */
#ifndef PROBING_CONVERTER_KNOWN_H
#define PROBING_CONVERTER_KNOWN_H

#include "digest.h"

#define KNOWN_MANY (3u << 18) /* full tables, so that none is half empty */
#define KNOWN_SOME (3u << 17)

struct known_table {
    struct digest *slots; /* id 0: free */
    size_t mask, n;
};

struct known {
    size_t most;
    struct known_table now, before; /* before: from when `now` was full the last time */
};

void known_free(struct known *k);
/* The place of d, with its id, or 0: good until the next call. NULL: no memory. */
struct digest *known_at(struct known *k, const struct digest *d);
/* Whether d is there. */
int known_has(const struct known *k, const struct digest *d);
/* The same, of the last `most` alone. */
int known_is_now(const struct known *k, const struct digest *d);
void known_put(struct known *k, struct digest *at, const struct digest *d);
/* d has this id from now on, whether it had one or not. 0 or -ENOMEM. */
int known_set(struct known *k, const struct digest *d);

#endif
