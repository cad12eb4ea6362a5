/* SPDX-License-Identifier: Apache-2.0 */
#include "known.h"

#include <stdlib.h>
#include <string.h>

void known_free(struct known *k) {
    free(k->now.slots);
    free(k->before.slots);
    *k = (struct known){.most = k->most};
}

static struct digest *find(const struct known_table *t, const struct digest *d) {
    size_t i = d->a & t->mask;

    while (t->slots[i].id && (t->slots[i].a != d->a || t->slots[i].b != d->b))
        i = (i + 1) & t->mask;
    return &t->slots[i];
}

/* Makes space for n more entries. Returns 0 or -ENOMEM. */
static int grow(struct known_table *t, size_t n) {
    struct known_table more = {.mask = t->mask ? t->mask : 1023, .n = t->n};

    while ((t->n + n - 1) * 4 >= more.mask * 3)
        more.mask = more.mask * 2 + 1;
    if (t->slots && more.mask == t->mask)
        return 0;
    if (!(more.slots = calloc(more.mask + 1, sizeof *more.slots)))
        return -ENOMEM;
    for (size_t i = 0; t->slots && i <= t->mask; i++)
        if (t->slots[i].id)
            *find(&more, &t->slots[i]) = t->slots[i];
    free(t->slots);
    *t = more;
    return 0;
}

int known_reserve(struct known *k, size_t n) {
    size_t most = k->most > k->now.n ? k->most - k->now.n : 1;

    return n ? grow(&k->now, n < most ? n : most) : 0;
}

struct digest *known_at(struct known *k, const struct digest *d) {
    if (k->now.n >= k->most) {
        free(k->before.slots);
        k->before = k->now;
        k->now = (struct known_table){0};
    }
    if (grow(&k->now, 1) != 0)
        return NULL;
    struct digest *at = find(&k->now, d), *was = k->before.slots ? find(&k->before, d) : at;
    if (!at->id && was->id)
        known_put(k, at, was);
    return at;
}

int known_is_now(const struct known *k, const struct digest *d) {
    return k->now.slots && find(&k->now, d)->id;
}

int known_has(const struct known *k, const struct digest *d) {
    return known_is_now(k, d) || (k->before.slots && find(&k->before, d)->id);
}

void known_put(struct known *k, struct digest *at, const struct digest *d) {
    k->now.n++;
    *at = *d;
}

int known_set(struct known *k, const struct digest *d) {
    struct digest *at = known_at(k, d);

    if (at && at->id)
        *at = *d;
    else if (at)
        known_put(k, at, d);
    return at ? 0 : -ENOMEM;
}
