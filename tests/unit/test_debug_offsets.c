/* SPDX-License-Identifier: Apache-2.0 */
/* _Py_DebugOffsets structures made of the two generated tables: which of them are accepted, and which are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "agent/pywalk/offsets.h"

static const struct {
    uint32_t low, high;
    struct pywalk_debug_words at;
} words[] = {
#include "agent/pywalk/debug_table.inc"
};
static const struct {
    uint32_t low, high;
    struct pywalk_fields fields;
} layouts[] = {
#include "agent/pywalk/offsets_table.inc"
};
enum { VERSIONS = sizeof words / sizeof *words, LAYOUTS = sizeof layouts / sizeof *layouts };

#define RUNTIME 0x10000u
static uint64_t
    memory[1024]; /* of the target, from RUNTIME on; all else is 0: nothing is initialised */

static int read_memory(void *ctx, uint64_t addr, void *buf, size_t n) {
    (void)ctx;
    if (addr < RUNTIME || addr + n > RUNTIME + sizeof memory) {
        memset(buf, 0, n);
        return 0;
    }
    memcpy(buf, (const char *)memory + (addr - RUNTIME), n);
    return 0;
}

/* Fills the memory with the table as that version of Python writes it, with room behind each last field. */
static const struct pywalk_fields *make(unsigned v) {
    const struct pywalk_debug_words *at = &words[v].at;
    const struct pywalk_fields *f = NULL;

    for (unsigned i = 0; i < LAYOUTS; i++)
        if (layouts[i].low == words[v].low)
            f = &layouts[i].fields;
    assert_non_null(f);
    memset(memory, 0, sizeof memory);
    memcpy(memory, "xdebugpy", 8);
    memory[1] = words[v].low;
#define PUT(name) memory[at->name] = f->name
    PUT(rt_finalizing), PUT(rt_interp_head), PUT(interp_id), PUT(interp_next), PUT(interp_threads);
    PUT(interp_gil), PUT(ts_next), PUT(ts_interp), PUT(ts_frame), PUT(ts_thread_id);
    PUT(ts_native_id), PUT(ts_chunk), PUT(fr_back), PUT(fr_code), PUT(fr_instr), PUT(fr_span);
    PUT(fr_owner), PUT(co_filename), PUT(co_name), PUT(co_qualname), PUT(co_linetable);
    PUT(co_firstlineno), PUT(co_bytecode), PUT(ob_type), PUT(bytes_data), PUT(str_state);
    PUT(str_length), PUT(str_ascii_data);
#undef PUT
    if (at->ts_base_frame != 0)
        memory[at->ts_base_frame] = f->ts_base_frame;
    memory[at->runtime_size] = memory[at->interp_size] = 1 << 20;
    memory[at->ts_size] = 1 << 12;
    memory[at->fr_size] = f->fr_span + 8;
    memory[at->co_size] = 1 << 10;
    memory[at->ob_head] = 16;
    memory[at->bytes_size] = f->bytes_data + 8;
    memory[at->bytes_length] = f->ob_size;
    memory[at->str_size] = f->str_any + 8;
    memory[at->gil] = 0x2000;
    memory[at->gil_locked] = 0x2000 + f->gil_locked;
    memory[at->gil_holder] = 0x2000 + f->gil_holder;
    memory[at->gc_size] = 256;
    memory[at->gc_collecting] = 64;
    memory[at->interp_gc] = f->interp_collecting - 64;
    return f;
}

static int open_target(uint32_t version, struct pywalk *pw) {
    const struct pywalk_target t = {.version = version, .runtime = RUNTIME};

    return pywalk_init(pw, (struct pywalk_mem){read_memory, NULL}, &t);
}

static void believed(void **state) {
    struct pywalk pw;
    (void)state;

    for (unsigned v = 0; v < VERSIONS; v++) {
        const struct pywalk_fields *f = make(v);
        assert_int_equal(open_target(0, &pw), 0);
        assert_int_equal(pw.version, words[v].low);
        assert_memory_equal(&pywalk_offsets(&pw)->f, f, sizeof *f);
        assert_int_equal(open_target(words[v].low, &pw), 0);
        /* another patch level; what has moved is followed */
        memory[1] = words[v].low + 0x700;
        memory[words[v].at.rt_interp_head] += 64;
        assert_int_equal(open_target(0, &pw), 0);
        assert_int_equal(pywalk_offsets(&pw)->f.rt_interp_head, f->rt_interp_head + 64);
    }
}

static void refused(void **state) {
    struct pywalk pw;
    (void)state;

    for (unsigned v = 0; v < VERSIONS; v++) {
        const struct pywalk_debug_words *at = &words[v].at;
        const uint16_t sizes[] = {at->runtime_size, at->interp_size, at->ts_size, at->fr_size,
                                  at->co_size,      at->bytes_size,  at->str_size};
        const uint16_t neighbours[] = {at->co_bytecode, at->co_linetable, at->str_ascii_data,
                                       at->ts_chunk};
        make(v);
        assert_int_equal(open_target(words[v].low + 0x100, &pw), -ENOTSUP); /* it is another one */
        memory[2] = 1;                                                      /* free-threaded */
        assert_int_equal(open_target(0, &pw), -ENOTSUP);
        make(v);
        memory[1] = words[v].low - 0x30; /* a release candidate */
        assert_int_equal(open_target(0, &pw), -ENOTSUP);
        make(v);
        memory[0] ^= 1;
        assert_int_equal(open_target(0, &pw), -ENOTSUP);
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const uint64_t wrong[] = {0, 4, 1ull << 40, UINT64_MAX};
            for (unsigned k = 0; k < sizeof wrong / sizeof *wrong; k++) {
                make(v);
                memory[sizes[i]] = wrong[k];
                assert_int_equal(open_target(0, &pw), -ENOTSUP);
            }
        }
        /* the header's fields may have moved with these */
        for (unsigned i = 0; i < sizeof neighbours / sizeof *neighbours; i++) {
            make(v);
            memory[neighbours[i]] += 8;
            assert_int_equal(open_target(0, &pw), -ENOTSUP);
        }
    }
    make(VERSIONS - 1);
    memory[1] = words[VERSIONS - 1].low + 0x10000; /* the next minor version */
    assert_int_equal(open_target(0, &pw), -ENOTSUP);
}

/* A field may end where its structure does, or the part of it that is read at once, but not a byte later. */
static void up_to_the_end(void **state) {
    struct pywalk pw;
    (void)state;

    for (unsigned v = 0; v < VERSIONS; v++) {
        const struct pywalk_debug_words *at = &words[v].at;
        const struct {
            uint16_t word, size, width;
        } fields[] = {{at->rt_interp_head, at->runtime_size, 8},
                      {at->rt_finalizing, at->runtime_size, 8},
                      {at->interp_id, at->interp_size, 8},
                      {at->interp_next, at->interp_size, 8},
                      {at->interp_threads, at->interp_size, 8},
                      {at->interp_gil, at->interp_size, 8},
                      {at->ts_next, at->ts_size, 8},
                      {at->ts_interp, at->ts_size, 8},
                      {at->ts_frame, at->ts_size, 8},
                      {at->ts_thread_id, at->ts_size, 8},
                      {at->ts_native_id, at->ts_size, 8},
                      {at->ts_base_frame, at->ts_size, 8},
                      {at->fr_back, at->fr_span, 8},
                      {at->fr_code, at->fr_span, 8},
                      {at->fr_instr, at->fr_span, 8},
                      {at->fr_owner, at->fr_span, 1},
                      {at->co_filename, at->co_linetable, 8},
                      {at->co_name, at->co_linetable, 8},
                      {at->co_qualname, at->co_linetable, 8},
                      {at->co_firstlineno, at->co_linetable, 4},
                      {at->ob_type, at->ob_head, 8},
                      {at->bytes_data, at->bytes_size, 1},
                      {at->str_state, at->str_size, 4},
                      {at->str_length, at->str_state, 8}};
        for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++) {
            if (!fields[i].word)
                continue;
            make(v);
            memory[fields[i].word] = memory[fields[i].size] - fields[i].width;
            assert_int_equal(open_target(0, &pw), 0);
            memory[fields[i].word]++;
            assert_int_equal(open_target(0, &pw), -ENOTSUP);
        }
    }
}

/* The fields of a thread state are read wherever they are, in any order; one that lies beyond all that is read of it is refused. */
static void threads_anywhere(void **state) {
    enum { HEAD = 0x1800, INTERP = 0x1900, TSTATE = 0x1a00, NATIVE = 40, IDENT = 0x7f0012345678 };
    const struct {
        uint64_t at;
        int rc;
    } idents[] = {{24, 1}, {400, 1}, {504, 1}, {505, -ENOTSUP}, {4088, -ENOTSUP}};
    struct pywalk_thread t;
    struct pywalk pw;
    (void)state;

    for (unsigned v = 0; v < VERSIONS; v++)
        for (unsigned i = 0; i < sizeof idents / sizeof *idents; i++) {
            const struct pywalk_debug_words *at = &words[v].at;
            make(v);
            memory[at->rt_interp_head] = HEAD;
            memory[at->interp_next] = 0, memory[at->interp_threads] = 8, memory[at->interp_id] = 16;
            memory[at->ts_next] = 8, memory[at->ts_interp] = 16, memory[at->ts_native_id] = NATIVE;
            memory[at->ts_thread_id] = idents[i].at;
            memory[HEAD / 8] = RUNTIME + INTERP;
            memory[INTERP / 8 + 1] = RUNTIME + TSTATE;
            memory[TSTATE / 8 + 2] = RUNTIME + INTERP;
            memory[(TSTATE + NATIVE) / 8] = 77;
            if (idents[i].rc == 1)
                memory[(TSTATE + idents[i].at) / 8] = IDENT;
            assert_int_equal(open_target(0, &pw), 0);
            assert_int_equal(pywalk_threads(&pw, &t, 1, NULL), idents[i].rc);
            if (idents[i].rc == 1) {
                assert_int_equal(t.ident, (uint64_t)IDENT);
                assert_int_equal(t.tid, 77);
            }
        }
}

static void without_a_runtime(void **state) {
    const struct pywalk_target t = {.version = 0x030800f0};
    struct pywalk pw;
    (void)state;

    assert_int_equal(pywalk_init(&pw, (struct pywalk_mem){read_memory, NULL}, &t), -ENOTSUP);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(believed), cmocka_unit_test(refused), cmocka_unit_test(up_to_the_end),
        cmocka_unit_test(threads_anywhere), cmocka_unit_test(without_a_runtime)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
