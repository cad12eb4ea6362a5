/* SPDX-License-Identifier: Apache-2.0 */
#include "clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int clock_add(struct clock_map *m, uint64_t ts, uint64_t realtime, uint64_t bracket) {
    if (m->n == m->cap) {
        size_t cap = m->cap ? m->cap * 2 : 64;
        struct clock_anchor *a = realloc(m->a, cap * sizeof *a);
        if (!a)
            return -ENOMEM;
        m->a = a;
        m->cap = cap;
    }
    /* the other clock was read somewhere within the bracket: take its middle */
    m->a[m->n++] = (struct clock_anchor){(int64_t)(ts + bracket / 2), (int64_t)realtime, 0};
    if (bracket > m->uncertainty)
        m->uncertainty = bracket;
    return 0;
}

static int by_mono(const void *x, const void *y) {
    const struct clock_anchor *a = x, *b = y;

    return a->mono < b->mono ? -1 : a->mono > b->mono;
}

void clock_ready(struct clock_map *m) {
    size_t n = 0;

    if (m->n == 0)
        return;
    qsort(m->a, m->n, sizeof *m->a, by_mono);
    for (size_t i = 0; i < m->n; i++) /* of two anchors with the same time, keep the first */
        if (n == 0 || m->a[i].mono > m->a[n - 1].mono)
            m->a[n++] = m->a[i];
    m->n = n;
    for (size_t i = 0; i + 1 < n; i++) {
        /* subtract as integers first: a double has 53 bits, a time of today 61 */
        double mono = (double)(int64_t)((uint64_t)m->a[i + 1].mono - (uint64_t)m->a[i].mono);
        double real = (double)(int64_t)((uint64_t)m->a[i + 1].real - (uint64_t)m->a[i].real);
        m->a[i].gain = (real - mono) / mono;
    }
    m->last = 0;
}

static inline int64_t along(const struct clock_anchor *a, int64_t t) {
    int64_t since = (int64_t)((uint64_t)t - (uint64_t)a->mono);
    double extra = since > 0 ? (double)since * a->gain : 0;

    if (!(extra > -4e18 && extra < 4e18)) /* the anchors make no sense */
        extra = 0;
    return (int64_t)((uint64_t)a->real + (uint64_t)since + (uint64_t)(int64_t)extra);
}

int64_t clock_utc(struct clock_map *m, uint64_t ts) {
    int64_t t = (int64_t)ts;
    size_t i = m->last;

    if (m->n == 0)
        return t;
    if (t < m->a[i].mono || (i + 1 < m->n && t >= m->a[i + 1].mono)) {
        size_t lo = 0, hi = m->n; /* find the first anchor after t */
        while (lo < hi) {
            size_t mid = (lo + hi) / 2;
            if (m->a[mid].mono > t)
                hi = mid;
            else
                lo = mid + 1;
        }
        i = lo ? lo - 1 : 0;
        m->last = i;
    }
    return along(&m->a[i], t);
}

void clock_utc_many(struct clock_map *m, const uint64_t *ts, int64_t *utc, size_t n) {
    for (size_t i = 0; i < n;) {
        utc[i] = clock_utc(m, ts[i]);
        /* those that follow in the same segment */
        const struct clock_anchor *a = m->n ? &m->a[m->last] : NULL;
        int64_t end = m->last + 1 < m->n ? m->a[m->last + 1].mono : INT64_MAX;
        for (i++; a && i < n && (int64_t)ts[i] >= a->mono && (int64_t)ts[i] < end; i++)
            utc[i] = along(a, (int64_t)ts[i]);
    }
}

uint64_t clock_mono(struct clock_map *m, int64_t utc) {
    uint64_t lo = 0, hi = 1ull << 62;

    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (clock_utc(m, mid) < utc)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void clock_free(struct clock_map *m) {
    free(m->a);
    memset(m, 0, sizeof *m);
}
