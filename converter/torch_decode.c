/* SPDX-License-Identifier: Apache-2.0 */
#include "torch_decode.h"

#include <errno.h>
#include <string.h>

#include "../traces/varint.h"

void torch_decode_start(struct torch_decode *d, uint64_t ts, const uint8_t *p, size_t n) {
    d->p = p;
    d->end = p + n;
    d->ts = ts;
}

static int get(struct torch_decode *d, uint64_t *v) {
    const uint8_t *p = d->p ? varint_get(d->p, d->end, v) : NULL;
    d->p = p;
    return p ? 0 : -EBADMSG;
}

/* Reads the two numbers that every event begins with. */
static inline int get_two(struct torch_decode *d, uint64_t *head, uint64_t *dt) {
    if (d->end - d->p < 2 * VARINT_MAX)
        return get(d, head) ? -EBADMSG : get(d, dt);
    const uint8_t *p = varint_get_wide(d->p, head);
    d->p = p = p ? varint_get_wide(p, dt) : NULL;
    return p ? 0 : -EBADMSG;
}

int torch_decode_next(struct torch_decode *d, struct torch_item *e) {
    uint64_t head, dt;
    int err;
    if (!d->p || d->p == d->end)
        return 0;
    memset(e, 0, sizeof *e);
    err = get_two(d, &head, &dt);
    if (err)
        return err;
    e->kind = head & 15;
    e->arg = head >> 4;
    e->ts = e->kind == TORCH_OPEN ? d->ts - dt : d->ts + dt;
    if (e->kind != TORCH_OPEN)
        d->ts = e->ts;
    switch (e->kind) {
    case TORCH_ENTER:
    case TORCH_EXIT:
    case TORCH_AGAIN:
    case TORCH_SPAN:
        break;
    case TORCH_BACK:
        err = get(d, &e->a);
        break;
    case TORCH_BACK_AT:
    case TORCH_STEP:
        err = get(d, &e->a);
        if (!err)
            err = get(d, &e->b);
        break;
    case TORCH_OPEN:
        e->c = e->arg;
        err = get(d, &e->arg);
        if (!err)
            err = get(d, &e->a);
        if (!err)
            err = get(d, &e->b);
        break;
    default:
        return -EBADMSG; /* from a newer writer; its length is not known */
    }
    return err ? err : 1;
}

/* Returns the place after the varint at p, where VARINT_MAX bytes are readable; NULL: it is too long. */
static inline const uint8_t *after(const uint8_t *p) {
    for (const uint8_t *end = p + VARINT_MAX; p < end;)
        if (!(*p++ & 0x80))
            return p;
    return NULL;
}

void torch_decode_pass(struct torch_decode *d) {
    static const uint8_t more[] = {[TORCH_BACK] = 1, [TORCH_BACK_AT] = 2, [TORCH_SPAN] = 0};
    const uint8_t *p = d->p;

    while (p && d->end - p >= 4 * VARINT_MAX) {
        unsigned kind = *p & 15;
        uint64_t dt = 0;
        if (kind >= sizeof more)
            break;
        p = after(p);
        p = p ? varint_get_wide(p, &dt) : NULL;
        for (int n = more[kind]; p && n; n--)
            p = after(p);
        if (!p || d->ts + dt < d->ts)
            break;
        d->p = p;
        d->ts += dt;
    }
}
