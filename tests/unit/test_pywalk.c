/* SPDX-License-Identifier: Apache-2.0 */
/* pywalk on memory made by hand: strings, line tables, layouts, and chains of frames that no running Python shows
 * on demand. Real processes: tests/e2e/test_pywalk.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/pywalk/image.h"
#include "agent/pywalk/mem.h"
#include "agent/pywalk/offsets.h"
#include "tests/programs/pywalk_line.h"
#include "traces/utf8.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#define BASE 0x7f0000000000ull
#define SIZE 65536

static uint8_t memory[SIZE];
static struct pywalk pw;
static const struct pywalk_fields *f;

static int read_memory(void *ctx, uint64_t addr, void *buf, size_t n) {
    (void)ctx;
    if (addr < BASE || addr - BASE > SIZE || SIZE - (addr - BASE) < n)
        return -EFAULT;
    memcpy(buf, memory + (addr - BASE), n);
    return 0;
}

static void put(uint64_t at, uint64_t v, size_t n) {
    memcpy(memory + at, &v, n);
}

enum { RUNTIME = 0x1000, INTERP = 0x4000, TSTATE = 0x8000, CODE = 0xa000, FRAME = 0xb000 };
#define CODE_TYPE 0x7f00dead0000ull

static int open_version(uint32_t version) {
    struct pywalk_target t = {.version = version,
                              .runtime = version >= PYWALK_3(7) ? BASE + RUNTIME : 0,
                              .interp_head = BASE + INTERP,
                              .code_type = CODE_TYPE};
    int rc = pywalk_init(&pw, (struct pywalk_mem){read_memory, NULL}, &t);
    f = &pywalk_offsets(&pw)->f;
    return rc;
}

static int clear(void **state) {
    (void)state;
    memset(memory, 0, sizeof memory);
    return 0;
}

/* ---- which versions -------------------------------------------------------------------------- */

static void versions(void **state) {
    (void)state;
    for (unsigned minor = 6; minor <= 12; minor++) {
        assert_int_equal(open_version(PYWALK_3(minor) | 0x00f0), 0);
        assert_int_equal(open_version(PYWALK_3(minor) | 0x63f0), 0);
        assert_int_equal(open_version(PYWALK_3(minor) | 0x00c2),
                         -ENOTSUP); /* a release candidate */
    }
    assert_int_equal(open_version(0x02071200), -ENOTSUP);
    assert_int_equal(open_version(PYWALK_3(5) | 0xf0), -ENOTSUP);
    assert_int_equal(open_version(PYWALK_3(13) | 0xf0), -ENOTSUP); /* no cookie in memory */
    assert_int_equal(open_version(0), -ENOTSUP);
}

static void not_initialised(void **state) {
    struct pywalk_thread t[4];
    (void)state;
    assert_int_equal(open_version(0x03080cf0), 0);
    assert_int_equal(pywalk_threads(&pw, t, 4, NULL), -EAGAIN);
}

/* ---- str ------------------------------------------------------------------------------------- */

/* kind 1, 2, 4; ascii is kind 1 with the ascii bit */
static uint64_t make_str(unsigned kind, int ascii, const void *data, size_t count) {
    uint32_t unit = f->str_kind_mask & -f->str_kind_mask;
    uint32_t word = kind * unit | f->str_compact_mask | (ascii ? f->str_ascii_mask : 0);

    put(0x100 + f->str_length, count, 8);
    put(0x100 + f->str_state, word, 4);
    memcpy(memory + 0x100 + (ascii ? f->str_ascii_data : f->str_compact_data), data, count * kind);
    return BASE + 0x100;
}

static void strings(void **state) {
    static const uint16_t two[] = {0x51fd, 0xd83d, 0x7ff, 0x800};
    static const uint32_t four[] = {0x1f600, 'x', 0x110000, 0x10ffff};
    char buf[64], small[8];
    (void)state;

    for (unsigned minor = 8; minor <= 12; minor += 4) {
        assert_int_equal(open_version(PYWALK_3(minor) | 0xf0), 0);
        assert_int_equal(pywalk_str(&pw, make_str(1, 1, "hello", 5), buf, sizeof buf), 5);
        assert_string_equal(buf, "hello");
        assert_int_equal(pywalk_str(&pw, make_str(1, 1, "", 0), buf, sizeof buf), 0);
        assert_string_equal(buf, "");
        assert_int_equal(pywalk_str(&pw, make_str(1, 0, "\xe9t\xe9", 3), buf, sizeof buf), 5);
        assert_string_equal(buf, "\xc3\xa9t\xc3\xa9");
        assert_int_equal(pywalk_str(&pw, make_str(2, 0, two, 4), buf, sizeof buf), 9);
        assert_string_equal(buf, "\xe5\x87\xbd?\xdf\xbf\xe0\xa0\x80");
        assert_int_equal(pywalk_str(&pw, make_str(4, 0, four, 4), buf, sizeof buf), 10);
        assert_string_equal(buf, "\xf0\x9f\x98\x80x?\xf4\x8f\xbf\xbf");
        /* cut at a character, never beyond the buffer */
        assert_int_equal(pywalk_str(&pw, make_str(2, 0, two, 4), small, sizeof small), 6);
        assert_string_equal(small, "\xe5\x87\xbd?\xdf\xbf");
        assert_int_equal(pywalk_str(&pw, make_str(2, 0, two, 4), small, 3), 0);
        assert_int_equal(pywalk_str(&pw, make_str(1, 1, "hello", 5), small, 3), 2);
        assert_string_equal(small, "he");
        assert_int_equal(pywalk_str(&pw, make_str(1, 1, "hello", 5), small, 1), 0);
        assert_int_equal(pywalk_str(&pw, make_str(1, 1, "hello", 5), small, 0), -EINVAL);
        /* no such kind, absurd length, beyond memory */
        assert_int_equal(pywalk_str(&pw, make_str(3, 0, two, 1), buf, sizeof buf), -EBADMSG);
        assert_int_equal(pywalk_str(&pw, BASE + 0x101, buf, sizeof buf), -EBADMSG);
        assert_int_equal(pywalk_str(&pw, BASE + SIZE, buf, sizeof buf), -EFAULT);
        make_str(1, 1, "hello", 5);
        put(0x100 + f->str_length, 1ull << 50, 8);
        assert_int_equal(pywalk_str(&pw, BASE + 0x100, buf, sizeof buf), -EBADMSG);
    }
}

/* ---- lines ------------------------------------------------------------------------------------- */

static void lines_lnotab(void **state) {
    static const uint8_t t[] = {0, 1, 6, 1, 8, (uint8_t)-1, 255, 0, 10, 100};
    (void)state;
    assert_int_equal(pywalk_line(PYWALK_3(8), t, sizeof t, 10, -1), 10);
    assert_int_equal(pywalk_line(PYWALK_3(8), t, sizeof t, 10, 0), 11);
    assert_int_equal(pywalk_line(PYWALK_3(8), t, sizeof t, 10, 5), 11);
    assert_int_equal(pywalk_line(PYWALK_3(8), t, sizeof t, 10, 6), 12);
    assert_int_equal(pywalk_line(PYWALK_3(8), t, sizeof t, 10, 14), 11);
    assert_int_equal(pywalk_line(PYWALK_3(8), t, sizeof t, 10, 278), 11);
    assert_int_equal(pywalk_line(PYWALK_3(8), t, sizeof t, 10, 279), 111);
    assert_int_equal(pywalk_line(PYWALK_3(8), t, 0, 10, 4), 10);
    assert_int_equal(pywalk_line(PYWALK_3(8), t, 3, 10, 100), 11); /* half an entry */
}

static void lines_pairs(void **state) {
    static const uint8_t t[] = {4, 1, 6, 0x80, 2, 2, 0, 5, 4, (uint8_t)-3};
    (void)state;
    assert_int_equal(pywalk_line(PYWALK_3(10), t, sizeof t, 10, -1), 10);
    assert_int_equal(pywalk_line(PYWALK_3(10), t, sizeof t, 10, 2), 11);
    assert_int_equal(pywalk_line(PYWALK_3(10), t, sizeof t, 10, 4), 0); /* the end is exclusive */
    assert_int_equal(pywalk_line(PYWALK_3(10), t, sizeof t, 10, 8), 0);
    assert_int_equal(pywalk_line(PYWALK_3(10), t, sizeof t, 10, 10), 13);
    assert_int_equal(pywalk_line(PYWALK_3(10), t, sizeof t, 10, 12), 15);
    assert_int_equal(pywalk_line(PYWALK_3(10), t, sizeof t, 10, 16), 0);
}

static void lines_locations(void **state) {
    /* short form, 2 units; one line +1, 1 unit; no column +100 (svarint 200 = 8, 3), 8 units; none, 1 unit;
     * long form -2 (svarint 5), 1 unit; a truncated one */
    static const uint8_t t[] = {0x80 | 3 << 3 | 1,
                                0x12,
                                0x80 | 11 << 3,
                                0,
                                1,
                                0x80 | 13 << 3 | 7,
                                0x40 | 8,
                                3,
                                0x80 | 15 << 3,
                                0x80 | 14 << 3,
                                5,
                                0,
                                1,
                                2,
                                0x80 | 14 << 3,
                                0x41};
    (void)state;
    assert_int_equal(pywalk_line(PYWALK_3(11), t, sizeof t, 10, -1), 10);
    assert_int_equal(pywalk_line(PYWALK_3(11), t, sizeof t, 10, 0), 10);
    assert_int_equal(pywalk_line(PYWALK_3(11), t, sizeof t, 10, 2), 10);
    assert_int_equal(pywalk_line(PYWALK_3(11), t, sizeof t, 10, 4), 11);
    assert_int_equal(pywalk_line(PYWALK_3(11), t, sizeof t, 10, 6), 111);
    assert_int_equal(pywalk_line(PYWALK_3(11), t, sizeof t, 10, 20), 111);
    assert_int_equal(pywalk_line(PYWALK_3(11), t, sizeof t, 10, 22), 0);
    assert_int_equal(pywalk_line(PYWALK_3(11), t, sizeof t, 10, 24), 109);
    assert_int_equal(pywalk_line(PYWALK_3(11), t, sizeof t, 10, 1000), 0);
    assert_int_equal(pywalk_line(PYWALK_3(11), t, 0, 10, 0), 0);
}

/* ---- frames ------------------------------------------------------------------------------------ */

static void make_code(uint64_t at) {
    put(at + f->ob_type, CODE_TYPE, 8);
}

/* Makes a chain of n frames of Python 3.8, each with a code object of its own. */
static void make_old_chain(unsigned n) {
    put(TSTATE + f->ts_frame, BASE + FRAME, 8);
    for (unsigned i = 0; i < n; i++) {
        uint64_t at = FRAME + i * 0x200;
        make_code(CODE + i * 0x100);
        put(at + f->fr_refcnt, 1, 8);
        put(at + f->fr_code, BASE + CODE + i * 0x100, 8);
        put(at + f->fr_lasti, 2 * i, 4);
        put(at + f->fr_state, 1, 1);
        put(at + f->fr_back, i + 1 < n ? BASE + at + 0x200 : 0, 8);
    }
}

static void frames_old(void **state) {
    struct pywalk_frame out[16];
    int cut;
    (void)state;

    assert_int_equal(open_version(0x03080cf0), 0);
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 16, &cut), 0);
    make_old_chain(5);
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 16, &cut), 5);
    assert_int_equal(cut, 0);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(out[i].frame, BASE + FRAME + i * 0x200);
        assert_int_equal(out[i].code, BASE + CODE + i * 0x100);
        assert_int_equal(out[i].lasti, 2 * i);
        assert_int_equal(out[i].flags, PYWALK_ENTRY);
    }
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 3, &cut), 3);
    assert_int_equal(cut, 1);
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 5, NULL), 5);

    /* a cycle */
    put(FRAME + 4 * 0x200 + f->fr_back, BASE + FRAME + 0x200, 8);
    struct pywalk_frame many[1000];
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, many, 1000, &cut), -EBADMSG);
    /* a frame that is being freed */
    make_old_chain(5);
    put(FRAME + 0x400 + f->fr_refcnt, 0, 8);
    put(FRAME + 0x400 + f->fr_back, 0, 8);
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 16, &cut), -EBADMSG);
    /* of a core what is there is kept, and what does not fit, too */
    pw.keep = 1;
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 16, &cut), -EBADMSG);
    pw.keep = 2;
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 16, &cut), 2);
    assert_int_equal(cut, -EBADMSG);
    make_old_chain(5);
    put(FRAME + 0x400 + f->fr_back, BASE / 2, 8); /* there is no memory */
    pw.keep = 0;
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 16, &cut), -EFAULT);
    pw.keep = 1;
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 16, &cut), 3);
    assert_int_equal(cut, -EFAULT);
    make_old_chain(5);
    put(FRAME + 0x400 + f->fr_code, BASE / 2, 8);
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 16, &cut), 5);
    assert_int_equal(cut, 0);
    assert_int_equal(out[2].code, 0);
    assert_int_equal(out[3].code, BASE + CODE + 0x300);
    pw.keep = 0;
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 16, &cut), -EFAULT);
    /* a generator that has just been suspended: no f_back, and it does not run */
    make_old_chain(5);
    put(FRAME + 0x400 + f->fr_gen, BASE + 0x100, 8);
    put(FRAME + 0x400 + f->fr_state, 0, 1);
    put(FRAME + 0x400 + f->fr_back, 0, 8);
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 16, &cut), -EBADMSG);
    /* one that has ended and is no longer the generator's */
    put(FRAME + 0x400 + f->fr_gen, 0, 8);
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 16, &cut), -EBADMSG);
    put(FRAME + 0x400 + f->fr_gen, BASE + 0x100, 8);
    put(FRAME + 0x400 + f->fr_state, 1, 1); /* a running one is a base like any other */
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 16, &cut), 3);
    assert_int_equal(out[2].flags, PYWALK_ENTRY | PYWALK_GENERATOR);
    /* not a code object; unreadable; misaligned */
    make_old_chain(5);
    put(CODE + 0x200 + f->ob_type, CODE_TYPE + 8, 8);
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 16, &cut), -EBADMSG);
    make_old_chain(5);
    put(FRAME + 0x400 + f->fr_back, BASE + SIZE, 8);
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 16, &cut), -EFAULT);
    put(FRAME + 0x400 + f->fr_back, BASE + 3, 8);
    assert_int_equal(pywalk_frames(&pw, BASE + TSTATE, out, 16, &cut), -EBADMSG);
}

/* A thread of 3.12 while it runs: the base shim and two Python frames of one eval loop, on a data stack whose top is right behind them. `at(i)`
 * are the frames, outermost first. */
enum { SHIM = 0x9000, CFRAME = 0x9100, CHUNK = 0xb000 };

static uint64_t at_3_12(unsigned i) {
    return CHUNK + f->chunk_data + 8 + i * (f->fr_span + 16);
}

static void make_3_12(unsigned n) {
    put(TSTATE + f->ts_cframe, BASE + CFRAME, 8);
    put(TSTATE + f->ts_chunk, BASE + CHUNK, 8);
    put(TSTATE + f->ts_datatop, BASE + at_3_12(n), 8);
    put(CHUNK + f->chunk_previous, 0, 8);
    put(CFRAME + f->cframe_current, BASE + at_3_12(n - 1), 8);
    put(SHIM + f->fr_owner, OWNER_SHIM, 1);
    put(SHIM + f->fr_back, 0, 8);
    for (unsigned i = 0; i < n; i++) {
        uint64_t code = CODE + i * 0x200;
        make_code(code);
        put(code + f->ob_size, 50, 8);
        put(code + f->co_stacksize, 1, 4);
        put(code + f->co_nlocalsplus, 1, 4);
        put(code + f->co_firsttraceable, 2, 4);
        put(at_3_12(i) + f->fr_code, BASE + code, 8);
        put(at_3_12(i) + f->fr_instr, BASE + code + f->co_bytecode + 20 + 2 * i, 8);
        put(at_3_12(i) + f->fr_back, BASE + (i == 0 ? SHIM : at_3_12(i - 1)), 8);
        put(at_3_12(i) + f->fr_owner, OWNER_THREAD, 1);
    }
}

static void frames_3_12(void **state) {
    struct pywalk_frame out[16];
    uint64_t t = BASE + TSTATE;
    int cut;
    (void)state;

    assert_int_equal(open_version(0x030c01f0), 0);
    make_3_12(3);
    assert_int_equal(pywalk_frames(&pw, t, out, 16, &cut), 3);
    assert_int_equal(out[0].frame, BASE + at_3_12(2));
    assert_int_equal(out[0].lasti, 24);
    assert_int_equal(out[0].flags, 0);
    assert_int_equal(out[2].flags, PYWALK_ENTRY);
    /* before its first traceable instruction a frame is not there yet */
    put(at_3_12(2) + f->fr_instr, BASE + CODE + 0x400 + f->co_bytecode + 2, 8);
    assert_int_equal(pywalk_frames(&pw, t, out, 16, &cut), 2);
    put(at_3_12(2) + f->fr_owner, OWNER_GENERATOR, 1);
    /* as a generator it is; but then it is not on the data stack, whose top is too high now: one frame
     * there may be in the making */
    assert_int_equal(pywalk_frames(&pw, t, out, 16, &cut), 3);
    assert_int_equal(out[0].flags, PYWALK_GENERATOR);

    /* an instruction outside of its code */
    make_3_12(3);
    put(at_3_12(1) + f->fr_instr, BASE + CODE + 0x200 + f->co_bytecode + 100, 8);
    assert_int_equal(pywalk_frames(&pw, t, out, 16, &cut), -EBADMSG);
    /* an owner that this version does not have */
    make_3_12(3);
    put(at_3_12(1) + f->fr_owner, 4, 1);
    assert_int_equal(pywalk_frames(&pw, t, out, 16, &cut), -EBADMSG);
    /* the base is missing */
    make_3_12(3);
    put(at_3_12(1) + f->fr_back, 0, 8);
    assert_int_equal(pywalk_frames(&pw, t, out, 16, &cut), -EBADMSG);
    /* one frame above the current one: being set up (or cleared), and the caller is the stack; two: the current
     * one is stale */
    make_3_12(3);
    put(CFRAME + f->cframe_current, BASE + at_3_12(1), 8);
    assert_int_equal(pywalk_frames(&pw, t, out, 16, &cut), 2);
    put(CFRAME + f->cframe_current, BASE + at_3_12(0), 8);
    assert_int_equal(pywalk_frames(&pw, t, out, 16, &cut), -EBADMSG);
    /* the current one is above the top: it was popped */
    make_3_12(3);
    put(TSTATE + f->ts_datatop, BASE + at_3_12(2), 8);
    assert_int_equal(pywalk_frames(&pw, t, out, 16, &cut), -EBADMSG);
    /* a name that was not set yet, and the C frame before it */
    make_3_12(3);
    put(CFRAME + f->cframe_current, 0, 8);
    assert_int_equal(pywalk_frames(&pw, t, out, 16, &cut), -EBADMSG);
    put(TSTATE + f->ts_cframe, BASE + TSTATE + f->ts_root_cframe, 8);
    assert_int_equal(pywalk_frames(&pw, t, out, 16, &cut), 0);
}

static void threads_listed(void **state) {
    struct pywalk_thread out[8];
    int more;
    (void)state;

    open_version(0x03080cf0);
    put(RUNTIME + f->rt_interp_head, BASE + INTERP, 8);
    put(RUNTIME + f->rt_current, BASE + TSTATE + 0x200, 8);
    put(INTERP + f->interp_threads, BASE + TSTATE, 8);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t at = TSTATE + i * 0x200;
        put(at + f->ts_interp, BASE + INTERP, 8);
        put(at + f->ts_thread_id, 1000 + i, 8);
        put(at + f->ts_next, i < 2 ? BASE + at + 0x200 : 0, 8);
    }
    assert_int_equal(open_version(0x03080cf0), 0);
    assert_int_equal(pywalk_threads(&pw, out, 8, &more), 3);
    assert_int_equal(more, 0);
    assert_int_equal(out[0].ident, 1000);
    assert_int_equal(out[0].flags, 0);
    assert_int_equal(out[1].flags, PYWALK_HOLDS_GIL);
    assert_int_equal(out[2].flags, PYWALK_MAIN);
    assert_int_equal(pywalk_threads(&pw, out, 2, &more), 2);
    assert_int_equal(more, 1);
    const uint64_t holds[] = {BASE + TSTATE + 0x400, BASE + TSTATE + 0x200, 0};
    const uint64_t waits[] = {BASE + TSTATE, BASE + TSTATE + 0x400, 0};
    assert_true(pywalk_holds_gil(&pw, holds));
    assert_false(pywalk_holds_gil(&pw, waits));
    assert_false(pywalk_holds_gil(&pw, waits + 2));
    /* a broken link, a cycle, another interpreter's thread */
    put(TSTATE + 0x200 + f->ts_next, 12345, 8);
    assert_int_equal(pywalk_threads(&pw, out, 8, &more), -EBADMSG);
    put(TSTATE + 0x200 + f->ts_next, BASE + TSTATE, 8);
    assert_int_equal(pywalk_threads(&pw, out, 8, &more), 8);
    assert_int_equal(more, 1);
    put(TSTATE + 0x200 + f->ts_interp, BASE, 8);
    assert_int_equal(pywalk_threads(&pw, out, 8, &more), -EBADMSG);
    /* pywalk_init sees that the structures do not fit */
    put(TSTATE + f->ts_interp, BASE, 8);
    assert_int_equal(open_version(0x03080cf0), -EBADMSG);
}

/* ---- this process ------------------------------------------------------------------------------ */

static void *own_tid(void *off) {
    int32_t tid;
    memcpy(&tid, (char *)pthread_self() + *(int *)off, sizeof tid);
    return (void *)(intptr_t)(tid == gettid());
}

static void pthread_tid(void **state) {
    pthread_t t;
    void *right = NULL;
    int off = pywalk_find_pthread_tid_off();
    (void)state;

    assert_true(off > 0);
    assert_int_equal(pthread_create(&t, NULL, own_tid, &off), 0);
    assert_int_equal(pthread_join(t, &right), 0);
    assert_non_null(right);
}

static void reading(void **state) {
    uint64_t word = 42, got = 0;
    void *me = (void *)(intptr_t)getpid();
    (void)state;
    assert_int_equal(pywalk_read_process(me, (uint64_t)(uintptr_t)&word, &got, 8), 0);
    assert_int_equal(got, 42);
    assert_int_equal(pywalk_read_process(me, 8, &got, 8), -EFAULT);
    errno = 7;
    assert_false(pywalk_mem_probe(0x1000));
    assert_true(pywalk_mem_probe((uint64_t)(uintptr_t)&word));
    assert_int_equal(errno, 7);
}

/* Reads itself once the process's first thread has ended, whose number is the process's. */
static void *reads_alone(void *unused) {
    const uint64_t words[] = {11, 22, 33}, addr[] = {(uintptr_t)&words[2], (uintptr_t)&words[0]};
    const struct pywalk self = {.mem = pywalk_process(getpid())};
    uint64_t got[2] = {0, 0}, one = 0;
    char stat[64] = "";
    (void)unused;

    while (strstr(stat, ") Z") == NULL) {
        FILE *file = fopen("/proc/self/stat", "r");
        if (file == NULL || fread(stat, 1, sizeof stat - 1, file) == 0)
            _exit(3);
        fclose(file);
    }
    _exit(mem_u64(&self, addr[0], &one) != 0 || one != 33                                ? 1
          : pywalk_mem_many(&self, addr, 2, got, 8) != 0 || got[0] != 33 || got[1] != 11 ? 2
                                                                                         : 0);
}

static void reading_without_the_main_thread(void **state) {
    int status;
    (void)state;

    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, reads_alone, NULL) != 0)
            _exit(4);
        pthread_exit(NULL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* Reads the dynamic symbols of the C library that this test runs on, found in memory. */
static void image(void **state) {
    struct pywalk_image im;
    struct pywalk_mem mem = {pywalk_read_process, (void *)(intptr_t)getpid()};
    uint64_t addr = 0, size = 0, start = getauxval(AT_BASE);
    (void)state;
    assert_int_equal(pywalk_image_open(&im, mem, start), 0);
    assert_int_equal(pywalk_image_symbol(&im, "_rtld_global", &addr, &size), 0);
    assert_true(addr > im.start && addr < im.end && size > 0);
    assert_int_equal(pywalk_image_symbol(&im, "no_such_symbol", &addr, &size), -ENOENT);
    assert_int_equal(pywalk_image_open(&im, mem, (uint64_t)(uintptr_t)memory), -ENOEXEC);
    assert_int_equal(pywalk_image_open(&im, mem, 0x1000), -EFAULT);
}

static void characters(void **state) {
    static const struct {
        uint32_t c;
        const char *utf8;
    } good[] = {{'a', "a"},
                {0x7f, "\x7f"},
                {0x80, "\xc2\x80"},
                {0x7ff, "\xdf\xbf"},
                {0x800, "\xe0\xa0\x80"},
                {0xffff, "\xef\xbf\xbf"},
                {0x10000, "\xf0\x90\x80\x80"},
                {0x10ffff, "\xf4\x8f\xbf\xbf"}};
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xc2",
                                      "\xc2x",
                                      "\xe0\x9f\xbf",
                                      "\xe1\x80",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff"};
    uint32_t c;
    char buf[5];

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        size_t n = pywalk_utf8(good[i].c, buf);
        buf[n] = '\0';
        assert_string_equal(buf, good[i].utf8);
        assert_int_equal(utf8_char(buf, n, &c), n);
        assert_int_equal(c, good[i].c);
        assert_int_equal(utf8_char(buf, n - 1 + (n == 1), &c), n == 1);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(utf8_char(bad[i], 4, &c), 0);
    assert_int_equal(pywalk_char((const uint8_t *)"\x01\x02\x03\x04", 1), 1);
    assert_int_equal(pywalk_char((const uint8_t *)"\x01\x02\x03\x04", 2), 0x0201);
    assert_int_equal(pywalk_char((const uint8_t *)"\x01\x02\x03\x04", 4), 0x04030201);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(versions, clear),
        cmocka_unit_test_setup(not_initialised, clear),
        cmocka_unit_test_setup(strings, clear),
        cmocka_unit_test(characters),
        cmocka_unit_test(lines_lnotab),
        cmocka_unit_test(lines_pairs),
        cmocka_unit_test(lines_locations),
        cmocka_unit_test_setup(frames_old, clear),
        cmocka_unit_test_setup(frames_3_12, clear),
        cmocka_unit_test_setup(threads_listed, clear),
        cmocka_unit_test(pthread_tid),
        cmocka_unit_test(reading),
        cmocka_unit_test(reading_without_the_main_thread),
        cmocka_unit_test_setup(image, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
