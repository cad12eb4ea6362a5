/* SPDX-License-Identifier: Apache-2.0 */
/* merge, symbol: groups of Python frames are put where their eval frames are, and no Python frame is ever lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "traces/merge.h"
#include "traces/symbol.h"

/*
 * Stacks as text, innermost first. Python: letters, '*' after an entry frame. Native: letters, 'E' an
 * eval frame, 'A' the agent's, 'L' the C library's, 'S' greenlet's. The result: letters.
 */
static const char *merged(const char *python, const char *native, int cut) {
    static char text[64];
    struct merge_python py[32];
    struct merge_native nat[32];
    uint32_t out[64];
    size_t np = 0, nn = 0;

    for (; *python; python++) {
        if (*python == '*')
            py[np - 1].entry = 1;
        else
            py[np++] = (struct merge_python){(uint32_t)*python, 0};
    }
    for (; *native; native++)
        nat[nn++] = (struct merge_native){(uint32_t)*native, *native == 'E',
                                          *native == 'A'   ? MERGE_AGENT
                                          : *native == 'L' ? MERGE_LIBC
                                          : *native == 'S' ? MERGE_SWITCH
                                                           : MERGE_PROGRAM};
    size_t n = merge_stacks(py, np, nat, nn, cut, out);
    assert_true(n <= np + nn);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)out[i];
    text[n] = 0;
    return text;
}

static void whole(void **state) {
    (void)state;
    assert_string_equal(merged("f*", "E", 0), "f");
    assert_string_equal(merged("fg*h*", "abEcEm", 0), "abfgchm"); /* the header's picture */
    assert_string_equal(merged("f*g*h*", "EEE", 0), "fgh");       /* before 3.11 */
    assert_string_equal(merged("fgh", "Em", 0), "fghm"); /* outermost group without its mark */
}

static void agents_frames(void **state) {
    (void)state;
    assert_string_equal(merged("f*g*", "aAbEAcEm", 0),
                        "abfcgm");                          /* between a caller and a callee */
    assert_string_equal(merged("f*", "LLAAcEm", 0), "cfm"); /* it waits in the C library */
    assert_string_equal(merged("f*", "AEm", 0), "fm");
    assert_string_equal(merged("f*", "LaAEm", 0), "Lafm"); /* the program's own call of it */
    assert_string_equal(merged("f*", "LLEm", 0), "LLfm");
    assert_string_equal(merged("", "LA", 0), "");
    assert_int_equal(merge_owner("/usr/lib/probing/libprobing-agent.so"), MERGE_AGENT);
    assert_int_equal(merge_owner("/lib/x86_64-linux-gnu/libc.so.6"), MERGE_LIBC);
    assert_int_equal(merge_owner("/opt/probing/lib/libcudart.so"), MERGE_PROGRAM);
    assert_int_equal(merge_owner(NULL), MERGE_PROGRAM);
    static const char *const libc[] = {"libc.so.6",         "libc-2.31.so", "libpthread-2.31.so",
                                       "libpthread.so.0",   "ld-2.31.so",   "ld-linux-x86-64.so.2",
                                       "libpthread_db-1.so"};
    static const char *const program[] = {"libcrypt.so.1", "libc++.so.1",   "libc.a",  "ld.so",
                                          "lib",           "libprobing.so", "greenlet"};
    for (unsigned i = 0; i < sizeof libc / sizeof *libc; i++)
        assert_int_equal(merge_owner(libc[i]), MERGE_LIBC);
    for (unsigned i = 0; i < sizeof program / sizeof *program; i++)
        assert_int_equal(merge_owner(program[i]), MERGE_PROGRAM);
}

static void greenlets(void **state) {
    (void)state;
    assert_string_equal(merged("f*g*", "aEbEScESdEm", 0),
                        "afbgScESdEm");                               /* started by another one */
    assert_string_equal(merged("f*g*", "EaEbESEm", 0), "EafbgSEm");   /* a loop that just starts */
    assert_string_equal(merged("f*g*", "SEbESEm", 0), "SfbgSEm");     /* about to switch */
    assert_string_equal(merged("t*f*g*", "ESEbESEm", 0), "tSfbgSEm"); /* its tracing function */
    assert_string_equal(merged("f*m*", "SEaEm", 0), "Sfamm");         /* the first greenlet */
    assert_string_equal(merged("", "SEm", 0), "SEm");
    assert_int_equal(merge_owner("/x/greenlet/_greenlet.cpython-312-x86_64-linux-gnu.so"),
                     MERGE_SWITCH);
}

static void one_side_only(void **state) {
    (void)state;
    assert_string_equal(merged("fg*h*", "", 0), "fgh");
    assert_string_equal(merged("", "abm", 0), "abm");
    assert_string_equal(merged("", "aEm", 0), "aEm"); /* nothing to put there: it stays */
    assert_string_equal(merged("", "", 0), "");
}

static void eval_without_python(void **state) {
    (void)state;
    /* the loop was just entered: the innermost eval frame has no Python frame yet */
    assert_string_equal(merged("f*g*", "EaEbEm", 0), "Eafbgm");
    /* cut: matched from inside, the outer one is over */
    assert_string_equal(merged("f*g*", "EaEbE", 1), "fagbE");
}

static void python_without_eval(void **state) {
    (void)state;
    /* an eval frame was not recognised: the inner groups go beside the innermost that was */
    assert_string_equal(merged("f*g*h*", "abEcEm", 0), "abfgchm");
    assert_string_equal(merged("f*gg*h*", "aEm", 0), "afgghm");
    /* none was: Python comes outside of what was seen */
    assert_string_equal(merged("f*g*", "abc", 0), "abcfg");
}

static void native_cut(void **state) {
    (void)state;
    assert_string_equal(merged("f*g*h*", "aEbE", 1), "afbgh"); /* h's eval is beyond the cut */
    assert_string_equal(merged("fg*hi*j", "aEb", 1), "afgbhij");
}

static void python_cut(void **state) {
    (void)state;
    /* the last group's entry frame is missing, and all outer groups */
    assert_string_equal(merged("f*gg", "aEbEcEm", 1), "afbggcEm");
}

/* Whatever the stacks are: each Python frame is there once, in order; so are the native frames, except for the eval frames that were replaced. */
static void nothing_is_lost(void **state) {
    uint32_t seed = 1;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        char python[40] = "", native[20] = "", *p = python, *q = native;
        int np = 0, nn = 0;
        seed = seed * 1664525 + 1013904223;
        for (int i = 0; i < (int)(seed >> 28); i++) {
            *p++ = (char)('a' + np++);
            if (seed >> i & 1)
                *p++ = '*';
        }
        seed = seed * 1664525 + 1013904223;
        for (int i = 0; i < (int)(seed >> 28); i++)
            *q++ = seed >> i & 1 ? 'E' : (char)('G' + nn++);
        *p = *q = 0;
        const char *out = merged(python, native, (int)(seed >> 27 & 1));
        char want_p = 'a', want_n = 'G';
        for (; *out; out++) {
            if (*out >= 'a') {
                assert_int_equal(*out, want_p);
                want_p++;
            } else if (*out != 'E') {
                assert_int_equal(*out, want_n);
                want_n++;
            }
        }
        assert_int_equal(want_p, 'a' + np);
        assert_int_equal(want_n, 'G' + nn);
    }
}

static void eval_loop(void **state) {
    (void)state;
    assert_true(symbol_is_eval("_PyEval_EvalFrameDefault"));
    assert_true(symbol_is_eval("_PyEval_EvalFrameDefault.cold"));
    assert_true(symbol_is_eval("_PyEval_EvalFrameDefault.lto_priv.0"));
    assert_false(symbol_is_eval("_PyEval_EvalFrameDefaults"));
    assert_false(symbol_is_eval("_PyEval_EvalFrame"));
    assert_false(symbol_is_eval(""));
}

static void readable(const char *name, const char *want) {
    char *text = symbol_readable(name);

    assert_string_equal(text ? text : name, want);
    free(text);
}

static void readable_names(void **state) {
    (void)state;
    readable("list_sort", "list_sort");
    readable("memcpy@@GLIBC_2.14", "memcpy");
    readable("list_sort.constprop.0.cold", "list_sort");
    readable(".part", ".part");
    readable("", "");
    readable("_ZN2at6native3addERKNS_6TensorE", "at::native::add(at::Tensor const&)");
    readable("_ZN2at3addEi.cold", "at::add(int)");
    readable("_Zwhat", "_Zwhat");
    assert_null(symbol_readable("main"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole),
        cmocka_unit_test(agents_frames),
        cmocka_unit_test(greenlets),
        cmocka_unit_test(one_side_only),
        cmocka_unit_test(eval_without_python),
        cmocka_unit_test(python_without_eval),
        cmocka_unit_test(native_cut),
        cmocka_unit_test(python_cut),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(eval_loop),
        cmocka_unit_test(readable_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
