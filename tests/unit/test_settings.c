/* SPDX-License-Identifier: Apache-2.0 */
/* traces/settings: values are checked strictly against their bounds, each has one written form, and every row of the table is consistent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "../../traces/settings.c"

static void decimals(void **state) {
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {{"0", 0},           {"0.0", 0},         {"0.1", 100000000},     {".5", 500000000},
                {"1.", 1000000000}, {"0.001", 1000000}, {"3600", 3600000000000}};
    static const char *const bad[] = {
        "",    ".",      "-1",     "1e-3", "inf",
        "nan", "0.0009", "3600.1", "1,5",  "1 ",
        " 1",  "0x1",    "1.2.3",  "0.1s", "1000000000000000000000000"};
    uint64_t ns;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(decimal_parse(good[i].text, 0.001, 3600, 1e9, &ns), 0);
        assert_int_equal(ns, good[i].ns);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(decimal_parse(bad[i], 0.001, 3600, 1e9, &ns), -EINVAL);
}

static void bytes(void **state) {
    static const struct setting s = {.min = 1, .max = 1e15};
    static const char *const bad[] = {"", "K", "1 ", "1KBB", "1kk", "-1M", "1e3", "1P"};
    uint64_t n;
    (void)state;
    assert_int_equal(parse_bytes(&s, "1.5k", &n), 0);
    assert_int_equal(n, 1536);
    assert_int_equal(parse_bytes(&s, "64M", &n), 0);
    assert_int_equal(n, 64 << 20);
    assert_int_equal(parse_bytes(&s, "12345", &n), 0);
    assert_int_equal(n, 12345);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(parse_bytes(&s, bad[i], &n), -EINVAL);
}

/* Each row's initial value is allowed, its written form gives the same value, and its names lead back to it. */
static void table_rows(void **state) {
    (void)state;
    for (int i = 0; i < SETTING_N; i++) {
        const struct setting *s = setting_at((enum setting_id)i);
        char why[SETTING_WHY] = "", env[SETTING_ENV], full[SETTING_ENV];
        struct setting_value v, again;
        assert_int_equal(setting_parse((enum setting_id)i, s->initial, &v, why, sizeof why), 0);
        assert_int_equal(setting_parse((enum setting_id)i, v.text, &again, why, sizeof why), 0);
        assert_int_equal(v.u, again.u);
        assert_string_equal(v.text, again.text);
        assert_int_equal(setting_find(s->key), i);
        snprintf(full, sizeof full, "probing.%s", s->key);
        assert_int_equal(setting_find(full), i);
        assert_non_null(s->range);
        assert_non_null(s->doc);
        assert_null(strpbrk(s->range, "\"\\\n")); /* they go into JSON as they are */
        assert_null(strpbrk(s->doc, "\"\\\n"));
        setting_env((enum setting_id)i, env);
        assert_int_equal(strncmp(env, "PROBING_", 8), 0);
        assert_null(strpbrk(env, ".abcdefghijklmnopqrstuvwxyz"));
        if (s->kind == SETTING_TEXT)
            continue;
        assert_int_equal(setting_parse((enum setting_id)i, "x", &v, why, sizeof why), -EINVAL);
        assert_non_null(strstr(why, s->range));
    }
    assert_int_equal(setting_find("probing.probing.native"), -ENOENT);
    assert_int_equal(setting_find(""), -ENOENT);
}

/* Every unit that people write, and rates that must not be mistaken for periods. */
static void units(void **state) {
    static const struct {
        enum setting_id id;
        const char *text;
        uint64_t want; /* 0: refused */
    } given[] = {{SETTING_sample_rate, "100Hz", 10000000},
                 {SETTING_sample_rate, "100hz", 10000000},
                 {SETTING_sample_rate, "1kHz", 1000000},
                 {SETTING_sample_rate, "10ms", 10000000},
                 {SETTING_sample_rate, "2s", 2000000000},
                 {SETTING_sample_rate, "1500us", 1500000},
                 {SETTING_sample_rate, "0.5Hz", 2000000000},
                 {SETTING_sample_rate, "2kHz", 0},
                 {SETTING_sample_rate, "0Hz", 0},
                 {SETTING_sample_rate, "Hz", 0},
                 {SETTING_sample_rate, "10 ms", 0},
                 {SETTING_sample_rate, "1m", 0},
                 {SETTING_max_memory, "1G", 1ull << 30},
                 {SETTING_max_memory, "1GB", 1ull << 30},
                 {SETTING_max_memory, "1GiB", 1ull << 30},
                 {SETTING_max_memory, "64mb", 64u << 20},
                 {SETTING_max_memory, "16777216B", 16u << 20},
                 {SETTING_segment_size, "1.5MiB", 3u << 19},
                 {SETTING_max_memory, "1GiBB", 0},
                 {SETTING_max_memory, "64iB", 0},
                 {SETTING_max_memory, "GB", 0}};
    struct setting_value v;
    char why[SETTING_WHY];
    double hz;
    (void)state;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        int rc = setting_parse(given[i].id, given[i].text, &v, why, sizeof why);
        if (rc != (given[i].want ? 0 : -EINVAL) || (!rc && v.u != given[i].want))
            fail_msg("%s: %d, %llu", given[i].text, rc, (unsigned long long)v.u);
    }
    assert_int_equal(setting_rate("100", 0.001, 1000, &hz), 0);
    assert_float_equal(hz, 100, 1e-9);
    assert_int_equal(setting_rate("10ms", 0.001, 1000, &hz), 0);
    assert_float_equal(hz, 100, 1e-9);
    assert_int_equal(setting_rate("0.5", 0.001, 1000, &hz), 0);
    assert_float_equal(hz, 0.5, 1e-9);
    assert_int_equal(setting_rate("1001", 0.001, 1000, &hz), -EINVAL);
    static const char *const none[] = {"", "x", "Hz", "ms", "0", "0Hz", "100x", "-1", "1e2"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(setting_rate(none[i], 0.001, 1000, &hz), -EINVAL);
    assert_int_equal(setting_advice(SETTING_sample_rate, "100", why, sizeof why), 1);
    assert_non_null(strstr(why, "100Hz"));
    assert_int_equal(setting_advice(SETTING_sample_rate, "1.5", why, sizeof why), 1);
    assert_int_equal(setting_advice(SETTING_sample_rate, "1", why, sizeof why), 0);
    assert_int_equal(setting_advice(SETTING_sample_rate, "100s", why, sizeof why), 0);
    assert_int_equal(setting_advice(SETTING_metrics, "100", why, sizeof why), 0);
}

/* Every decimal number gives the same as strtod(). */
static void any_decimal(void **state) {
    uint64_t seed = 2463534242u;
    char text[64];
    (void)state;
    for (int i = 0; i < 20000; i++) {
        double v;
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned whole = (unsigned)(seed >> 33) % 1000000, part = (unsigned)(seed >> 20) % 1000;
        int n = snprintf(text, sizeof text, i % 2 ? "%u" : "%u.%03u", whole, part);
        assert_int_equal(decimal_digits(text, text + n, &v), 0);
        assert_float_equal(v, strtod(text, NULL), 1e-9 * (1 + v));
        text[(unsigned)(seed >> 40) % (unsigned)n] = "/:-,eE x"[i % 8];
        assert_int_equal(decimal_digits(text, text + n, &v), -EINVAL);
    }
    double v;
    assert_int_equal(decimal_digits(text, text, &v), -EINVAL);
    assert_int_equal(decimal_digits("1.2.3", &"1.2.3"[5], &v), -EINVAL);
    assert_int_equal(decimal_digits("9999999999999999999", &"9999999999999999999"[19], &v),
                     -EINVAL);
}

static void misspelt(void **state) {
    static const char *const slips[][2] = {
        {"PROBING_TRIGERS=on", "PROBING_TRIGGERS"},
        {"PROBING_SAMPLERATE=1", "PROBING_SAMPLE_RATE"},
        {"probing_native=0", "PROBING_NATIVE"},
        {"PROBING_TORCH_PROFILE=on", NULL},
        {"PROBE_TORCH_EXPR=a@b", "PROBE_TORCH_EXPRS"},
        {"PROBING_RUNDIR=/x", "PROBING_RUN_DIR"},
        {"PROBING_TORCH_PROFILLNG=on", "PROBING_TORCH_PROFILING"},
        {"PROBING_TRACE=x", NULL},
        {"PROBING_MAX_MEMORY=1G", NULL},
        {"PROBING_TRAIN=1", NULL},
        {"PROBING_RUN=x", NULL},
        {"PROBING_PORT=1", NULL},
        {"PROBING=1", NULL},
        {"PROBE=1", NULL},
        {"TRACE=1", NULL},
        {"PROBING_", NULL},
        {"", NULL}};
    char why[SETTING_WHY];
    (void)state;
    for (size_t i = 0; i < sizeof slips / sizeof *slips; i++) {
        assert_int_equal(setting_misspelt(slips[i][0], why, sizeof why), slips[i][1] != NULL);
        if (slips[i][1])
            assert_non_null(strstr(why, slips[i][1]));
    }
}

static void names(void **state) {
    struct setting_value v;
    char why[SETTING_WHY];
    (void)state;
    assert_int_equal(setting_parse(SETTING_environment, setting_at(SETTING_environment)->initial,
                                   &v, why, sizeof why),
                     0);
    assert_int_equal(setting_parse(SETTING_environment, "", &v, why, sizeof why), 0);
    assert_int_equal(setting_parse(SETTING_environment, "MINE_*, other.x", &v, why, sizeof why), 0);
    assert_int_equal(setting_parse(SETTING_environment, "A;B", &v, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "';' is in no name"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misspelt),   cmocka_unit_test(names), cmocka_unit_test(units),
        cmocka_unit_test(decimals),   cmocka_unit_test(bytes), cmocka_unit_test(any_decimal),
        cmocka_unit_test(table_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
