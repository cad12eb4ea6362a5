/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short way through the encoder (encode_plain) and the long one write the same bytes, whatever lies in the ring; and
 * the short way takes what it is for.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "writer/encode.h"

#define RING_SIZE (1u << 16)
#define LARGE     (8u << 10)
#define KEYS      40

static struct encoder quick, slow;
static struct dicts dicts;

static uint64_t rnd(void) {
    static uint64_t s = 88172645463325252u;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
}

static int setup(void **state) {
    struct ring *r = malloc(sizeof *r + RING_SIZE);
    uint32_t id;
    if (!r)
        return -1;
    ring_init(r, RING_SIZE);
    memset(r->data, 0, RING_SIZE);
    encoder_init(&quick);
    encoder_init(&slow);
    dicts_init(&dicts, 0);
    for (unsigned i = 1; i <= KEYS; i++)
        if (dicts_define(&dicts, TRACE_stack, i * 7, &id) ||
            dicts_define(&dicts, TRACE_module, i * 9, &id))
            return -1;
    *state = r;
    return 0;
}

static int teardown(void **state) {
    encoder_free(&quick);
    encoder_free(&slow);
    dicts_free(&dicts);
    free(*state);
    return 0;
}

/* Both ways' blocks, finished; then they begin anew. */
static void compare(void) {
    const uint64_t lost[TRACE_NLOST] = {0};
    for (unsigned k = 0; k < NKINDS; k++) {
        struct builder *a = &quick.block[k], *b = &slow.block[k];
        struct trace_hint ha, hb;
        assert_int_equal(a->count, b->count);
        if (a->count == 0)
            continue;
        size_t na = builder_finish(a, 1, 0, lost, &ha), nb = builder_finish(b, 1, 0, lost, &hb);
        assert_int_equal(na, nb);
        assert_memory_equal(a->buf, b->buf, na);
        assert_true(ha.first_ts == hb.first_ts && ha.last_ts == hb.last_ts && ha.types == hb.types);
        builder_reset(a);
        builder_reset(b);
    }
}

/* One record into a block, the long way. Of numbers and keys only. */
static int encode(struct encoder *e, const uint64_t *raw) {
    const struct trace_record *rec = trace_record_by_id(ring_rec_type(raw));
    struct writer_value v[TRACE_MAX_FIELDS] = {0};
    for (unsigned i = 0; i < rec->nfields && i < ring_rec_nfields(raw); i++)
        v[i].u = raw[1 + i];
    return encode_record(e, &dicts, rec, v);
}

/* The ring from its tail, both ways, and given back. Returns how many records went the short way. */
static uint64_t read_both(struct ring *r) {
    struct ring_cursor c = ring_cursor(r, 0), all = c;
    uint64_t n = 0;
    const uint64_t *raw;
    for (;;) {
        uint64_t before = c.pos;
        uint64_t got = encode_plain(&quick, &c, before + 20 * 64, LARGE, &dicts);
        assert_true(got ? c.pos > before && c.pos <= before + 20 * 64 : c.pos == before);
        n += got;
        if (!got && !(raw = ring_next(&c)))
            break;
        int rc = got ? 0 : encode(&quick, raw);
        /* The other one, up to the same place. */
        while (all.pos < c.pos) {
            const uint64_t *same = ring_next(&all);
            if (!same)
                break;
            int expected = encode(&slow, same);
            assert_int_equal(expected, got ? 0 : rc);
        }
        assert_true(all.pos >= c.pos);
        size_t len = quick.block[TRACE_KIND_DATA].len;
        assert_true(len < LARGE + 100); /* one row */
        if (len >= LARGE)
            compare();
    }
    assert_false(c.bad);
    ring_release(r, c.pos);
    compare();
    return n;
}

/* Types of numbers and keys alone: what may go the short way. */
static unsigned plain_types(unsigned *types) {
    unsigned n = 0;
    for (unsigned id = 1; id <= TRACE_MAX_ID; id++) {
        const struct trace_record *rec = trace_record_by_id(id);
        int plain = rec && rec->kind != TRACE_KIND_DICT;
        for (unsigned i = 0; plain && i < rec->nfields; i++)
            plain = !trace_type_is_var(rec->fields[i].type);
        if (plain)
            types[n++] = id;
    }
    return n;
}

/* A record with values of all lengths. Its keys are known, none, or now and then unknown. */
static int put(struct ring *r, unsigned type, unsigned nfields, int unknown) {
    const struct trace_record *rec = trace_record_by_id(type);
    uint64_t *f = ring_reserve(r, type, nfields, 0);
    if (!f)
        return -1;
    for (unsigned i = 0; i < nfields; i++) {
        f[i] = rnd() >> (rnd() & 63);
        if (i < rec->nfields && rec->fields[i].type == TRACE_REF) {
            unsigned step = rec->fields[i].ref == TRACE_stack ? 7 : 9;
            f[i] = unknown ? 1 : rnd() % (KEYS + 1) * step;
        }
    }
    ring_commit(f);
    return 0;
}

static void test_same_bytes(void **state) {
    struct ring *r = *state;
    unsigned types[TRACE_MAX_ID + 1], n = plain_types(types);
    uint64_t took = 0, made = 0;
    assert_true(n >= 8);
    for (unsigned round = 0; round < 300; round++) {
        unsigned type = types[0];
        for (unsigned i = 0; i < 400; i++) {
            unsigned nfields, odd = (unsigned)(rnd() % 64);
            if (rnd() % 16 == 0) /* several of a type in a row */
                type = types[rnd() % n];
            nfields = trace_record_by_id(type)->nfields;
            if (odd == 0)
                nfields += 1 + (unsigned)(rnd() % 3); /* a newer agent's */
            else if (odd == 1)
                nfields -= 1; /* an older one's */
            if (put(r, type, nfields, odd == 2))
                break;
            made++;
        }
        took += read_both(r);
    }
    assert_true(made > 50000);
    assert_true(took > made / 2 && took < made);
}

/* What it must leave alone, each behind one sample that it takes. */
static void test_stops(void **state) {
    struct ring *r = *state;
    struct ring_cursor c = ring_cursor(r, 0);
    uint64_t *busy;

    put(r, TRACE_sample, TRACE_sample_NFIELDS, 0);
    assert_int_equal(encode_plain(&quick, &c, UINT64_MAX, LARGE, &dicts),
                     0); /* first in the block */
    assert_int_equal(encode(&quick, ring_next(&c)), 0);

    put(r, TRACE_sample, TRACE_sample_NFIELDS, 0);
    put(r, TRACE_sample, TRACE_sample_NFIELDS, 1);
    assert_int_equal(encode_plain(&quick, &c, UINT64_MAX, LARGE, &dicts), 1);
    size_t len = quick.block[TRACE_KIND_DATA].len;
    assert_int_equal(encode_plain(&quick, &c, UINT64_MAX, LARGE, &dicts), 0); /* unknown key */
    assert_int_equal(quick.block[TRACE_KIND_DATA].len, len);
    assert_int_equal(encode(&quick, ring_next(&c)), -ENOENT);

    put(r, TRACE_sample, TRACE_sample_NFIELDS, 0);
    busy = ring_reserve(r, TRACE_sample, TRACE_sample_NFIELDS, 0);
    put(r, TRACE_sample, TRACE_sample_NFIELDS, 0);
    assert_non_null(busy);
    assert_int_equal(encode_plain(&quick, &c, c.pos, LARGE, &dicts), 0);   /* the limit */
    assert_int_equal(encode_plain(&quick, &c, UINT64_MAX, 64, &dicts), 0); /* the block is large */
    assert_int_equal(encode_plain(&quick, &c, UINT64_MAX, LARGE, &dicts), 1);
    assert_int_equal(encode_plain(&quick, &c, UINT64_MAX, LARGE, &dicts), 0);
    ring_commit(busy);
    assert_int_equal(encode_plain(&quick, &c, UINT64_MAX, LARGE, &dicts), 2);

    /* A record that claims to be longer than what was reserved. */
    put(r, TRACE_sample, TRACE_sample_NFIELDS, 0);
    r->head -= 8;
    assert_int_equal(encode_plain(&quick, &c, UINT64_MAX, LARGE, &dicts), 0);
    assert_null(ring_next(&c));
    assert_int_equal(c.bad, 1);
    r->head = r->tail + 2 * RING_SIZE;
    assert_int_equal(encode_plain(&quick, &c, UINT64_MAX, LARGE, &dicts), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_same_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stops, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
