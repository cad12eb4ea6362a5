/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's settings and trace names: strict values, the text before the environment, every name in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../agent/config.c"
#include "../../agent/names.c"

static void seconds(void **state) {
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
        assert_int_equal(config_seconds(good[i].text, 0.001, 3600, &ns), 0);
        assert_int_equal(ns, good[i].ns);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(config_seconds(bad[i], 0.001, 3600, &ns), -EINVAL);
}

static void defaults_environment_text(void **state) {
    struct agent_config c;
    char cwd[CONFIG_PATH], want[CONFIG_PATH + 16];
    (void)state;
    config_load(&c, NULL);
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(want, sizeof want, "%s/trace.zst", cwd);
    assert_string_equal(c.trace, want);
    assert_int_equal(c.period_ns, 100000000);
    assert_int_equal(c.metrics_ns, 1000000000);
    assert_int_equal(c.native, 1);
    assert_int_equal(c.ncomplaints, 0);

    setenv("PROBING_TRACE", "/e/t.zst", 1);
    setenv("PROBING_SAMPLE_RATE", "0.5", 1);
    setenv("PROBING_NATIVE", "0", 1);
    setenv("PROBING_SESSION", "s", 1);
    config_load(&c, "PROBING_SAMPLE_RATE=2\nPROBING_METRICS=0\nPROBING_MAIN_PID=77");
    assert_string_equal(c.trace, "/e/t.zst");
    assert_string_equal(c.session, "s");
    assert_int_equal(c.period_ns, 2000000000);
    assert_int_equal(c.native, 0);
    assert_int_equal(c.metrics_ns, 0);
    assert_int_equal(c.main_pid, 77);

    config_load(
        &c, "PROBING_SAMPLE_RATE=x\nPROBING_NATIVE=2\nPROBING_METRICS=0.01\nPROBING_TRACE=/tmp/\n");
    assert_int_equal(c.ncomplaints, 3);
    assert_int_equal(c.period_ns, 100000000);
    assert_int_equal(c.native, 1);
    assert_string_equal(c.trace, "/tmp");
    assert_int_equal(c.trace_is_dir, 1);
    unsetenv("PROBING_TRACE");
    unsetenv("PROBING_SAMPLE_RATE");
    unsetenv("PROBING_NATIVE");
    unsetenv("PROBING_SESSION");
}

static void ranks(void **state) {
    struct agent_ranks r;
    (void)state;
    setenv("SLURM_PROCID", "5", 1);
    setenv("LOCAL_RANK", "x", 1);
    config_ranks(&r);
    assert_int_equal(r.rank, 5);
    assert_int_equal(r.local_rank, -1);
    setenv("RANK", "3", 1);
    config_ranks(&r);
    assert_int_equal(r.rank, 3);
    unsetenv("RANK");
    unsetenv("SLURM_PROCID");
    unsetenv("LOCAL_RANK");
}

static void names(void **state) {
    struct agent_config c = {.trace = "/tmp/t.zst"};
    char dir[] = "/tmp/test_agent_config_XXXXXX", buf[CONFIG_PATH], want[CONFIG_PATH];
    (void)state;
    assert_int_equal(names_trace(&c, "h", 2, 9, 1, 1, buf, sizeof buf), 0);
    assert_string_equal(buf, "/tmp/t.zst");
    assert_int_equal(names_trace(&c, "h", 2, 9, 1, 3, buf, sizeof buf), 0);
    assert_string_equal(buf, "/tmp/t-3.zst");
    assert_non_null(mkdtemp(dir));
    snprintf(c.trace, sizeof c.trace, "%s/t", dir);
    assert_int_equal(names_trace(&c, "../a b", 2, 9, 0, 2, buf, sizeof buf), 0);
    snprintf(want, sizeof want, "%s/t.d/_._a_b-r2-9-2.zst", dir);
    assert_string_equal(buf, want);
    c.trace_is_dir = 1;
    assert_int_equal(names_trace(&c, "h", -1, 9, 1, 1, buf, sizeof buf), 0);
    snprintf(want, sizeof want, "%s/t/h-9.zst", dir);
    assert_string_equal(buf, want);
    assert_int_equal(names_trace(&c, "h", -1, 9, 1, NAMES_TRIES + 1, buf, sizeof buf), -ENOSPC);
    assert_int_equal(names_trace(&c, "h", -1, 9, 1, 1, buf, 10), -ENAMETOOLONG);
    snprintf(c.trace, sizeof c.trace, "/nonexistent/x/y");
    assert_int_equal(names_trace(&c, "h", -1, 9, 1, 1, buf, sizeof buf), -ENOENT);
    snprintf(buf, sizeof buf, "%s/t.d", dir);
    rmdir(buf);
    snprintf(buf, sizeof buf, "%s/t", dir);
    rmdir(buf);
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seconds),
        cmocka_unit_test(defaults_environment_text),
        cmocka_unit_test(ranks),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
