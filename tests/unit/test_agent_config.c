/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's settings and trace names: values are checked strictly, the text has priority over the environment, and names are tried one after
 * the other. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/base/memory.c"
#include "agent/core/config.c"
#include "agent/core/settings.c"

/* settings.c calls this; it collects the changes that were recorded. */
static char recorded[4096];

int writer_emit(struct writer *w, unsigned type, const struct writer_value *v) {
    const struct record_config *r = (const struct record_config *)v;
    size_t n = strlen(recorded);
    (void)w;
    assert_int_equal(type, TRACE_config);
    snprintf(recorded + n, sizeof recorded - n, "%.*s=%.*s\n", (int)r->key.n,
             (const char *)r->key.p, (int)r->value.n, (const char *)r->value.p);
    return 0;
}

static void defaults_environment_text(void **state) {
    struct agent_config c;
    char cwd[CONFIG_PATH], want[CONFIG_PATH + 16];
    (void)state;
    config_load(&c, NULL);
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(want, sizeof want, "%s/trace.zst", cwd);
    assert_string_equal(c.trace, want);
    assert_int_equal(settings_number(SETTING_sample_rate), 100000000);
    assert_int_equal(settings_number(SETTING_metrics), 1000000000);
    assert_int_equal(settings_number(SETTING_native), 1);
    assert_int_equal(c.ncomplaints, 0);

    setenv("PROBING_TRACE", "/e/t.zst", 1);
    setenv("PROBING_SAMPLE_RATE", "0.5", 1);
    setenv("PROBING_NATIVE", "0", 1);
    setenv("PROBING_SESSION", "s", 1);
    config_load(&c, "PROBING_SAMPLE_RATE=2\nPROBING_METRICS=0\nPROBING_MAIN_PID=77");
    assert_string_equal(c.trace, "/e/t.zst");
    assert_string_equal(c.session, "s");
    assert_int_equal(settings_number(SETTING_sample_rate), 2000000000);
    assert_int_equal(settings_number(SETTING_native), 0);
    assert_int_equal(settings_number(SETTING_metrics), 0);
    assert_int_equal(c.main_pid, 77);

    config_load(
        &c, "PROBING_SAMPLE_RATE=x\nPROBING_NATIVE=2\nPROBING_METRICS=0.01\nPROBING_TRACE=/tmp/\n");
    assert_int_equal(c.ncomplaints, 3);
    assert_int_equal(settings_number(SETTING_sample_rate), 100000000);
    assert_int_equal(settings_number(SETTING_native), 1);
    assert_string_equal(c.trace, "/tmp");
    assert_int_equal(c.trace_is_dir, 1);
    unsetenv("PROBING_TRACE");
    unsetenv("PROBING_SAMPLE_RATE");
    unsetenv("PROBING_NATIVE");
    unsetenv("PROBING_SESSION");
}

/* A value that may be a mistake is used, with a message; the root directory as a folder; an environment that says which run it belongs to. */
static void words_and_names(void **state) {
    struct agent_config c;
    (void)state;
    config_load(&c, "PROBING_SAMPLE_RATE=100\nPROBING_TRACE=/\n");
    assert_int_equal(c.ncomplaints, 1);
    assert_non_null(strstr(c.complaints[0], "100Hz"));
    assert_true(settings_number(SETTING_sample_rate) == 100000000000u);
    assert_string_equal(c.trace, "/");
    assert_int_equal(c.trace_is_dir, 1);
    assert_int_equal(c.first, 1);
    setenv("PROBING_RUN", "somebody", 1);
    config_load(&c, NULL);
    assert_int_equal(c.first, 0);
    config_load(&c, "PROBING_NATIVE=1");
    assert_int_equal(c.first, 0);
    config_load(&c, "PROBING_TRACE=/tmp/x.zst");
    assert_int_equal(c.first, 1);
    unsetenv("PROBING_RUN");
}

/* Where the trace is to be: a folder that need not exist yet, a relative path in a folder that was deleted, and one that is too long. */
static void where_to(void **state) {
    char dir[] = "/tmp/test_agent_config_XXXXXX", name[CONFIG_PATH + 64], longest[CONFIG_PATH];
    struct agent_config c;
    int here = open(".", O_RDONLY | O_DIRECTORY);
    (void)state;
    assert_true(here >= 0 && mkdtemp(dir) && chdir(dir) == 0);
    snprintf(name, sizeof name, "PROBING_TRACE=%s/new//", dir);
    config_load(&c, name);
    assert_int_equal(strlen(c.trace), strlen(dir) + 4);
    assert_int_equal(c.trace_is_dir, 1);
    config_load(&c, "PROBING_TRACE=a/new");
    assert_int_equal(strlen(c.trace), strlen(dir) + 6);
    assert_int_equal(c.trace_is_dir, 0);
    memset(longest, 'x', sizeof longest);
    for (size_t n = CONFIG_PATH - strlen(dir) - 4; n < CONFIG_PATH - strlen(dir) + 2; n++) {
        int fits = strlen(dir) + 1 + n < CONFIG_PATH;
        snprintf(name, sizeof name, "PROBING_TRACE=%.*s", (int)n, longest);
        config_load(&c, name);
        assert_int_equal(strlen(c.trace), fits ? strlen(dir) + 1 + n : strlen("/trace.zst"));
        assert_int_equal(c.ncomplaints, !fits);
    }
    assert_int_equal(rmdir(dir), 0);
    config_load(&c, "PROBING_TRACE=t.zst");
    assert_string_equal(c.trace, "/t.zst");
    assert_int_equal(chdir("/"), 0);
    config_load(&c, "PROBING_TRACE=t.zst");
    assert_string_equal(c.trace, "/t.zst");
    assert_int_equal(fchdir(here), 0);
    close(here);
}

/* A variable that is nearly the name of a setting is reported, once; one of somebody else is not. */
static void misspelt(void **state) {
    struct agent_config c;
    (void)state;
    setenv("PROBING_SAMPLE_RAET", "1", 1);
    setenv("PROBINGS", "1", 1);
    config_load(&c, NULL);
    assert_int_equal(c.ncomplaints, 1);
    assert_non_null(strstr(c.complaints[0], "PROBING_SAMPLE_RAET"));
    assert_non_null(strstr(c.complaints[0], "PROBING_SAMPLE_RATE"));
    unsetenv("PROBING_SAMPLE_RAET");
    config_load(&c, NULL);
    assert_int_equal(c.ncomplaints, 0);
    unsetenv("PROBINGS");
}

/* Every variable is found, wherever it is, and none that only begins with its name; also a variable at the end of a page. */
static void any_environment(void **state) {
    char name[32], value[64], buf[64];
    (void)state;
    for (int i = 0; i < 400; i++) {
        snprintf(name, sizeof name, "TEST_V%d", i);
        snprintf(value, sizeof value, "%0*d", 1 + i % 50, i);
        setenv(name, value, 1);
    }
    for (int i = 0; i < 400; i++) {
        snprintf(name, sizeof name, "TEST_V%d", i);
        snprintf(value, sizeof value, "%0*d", 1 + i % 50, i);
        assert_int_equal(config_env(name, buf, sizeof buf), 1);
        assert_string_equal(buf, value);
        assert_int_equal(config_env(name, buf, strlen(value)), -E2BIG);
    }
    assert_int_equal(config_env("TEST_V", buf, sizeof buf), 0);
    assert_int_equal(config_env("TEST_V400", buf, sizeof buf), 0);
    for (int i = 0; i < 400; i++) {
        snprintf(name, sizeof name, "TEST_V%d", i);
        unsetenv(name);
    }
}

static unsigned told;
static void changed(void) {
    told++;
}

static void changes(void **state) {
    struct agent_config c;
    char why[SETTING_WHY], text[SETTING_TEXT_MAX], all[8192];
    (void)state;
    config_load(&c, NULL);
    recorded[0] = 0;
    settings_apply(NULL, 0);
    assert_string_equal(recorded, "");
    settings_watch(SETTING_sample_rate, changed);
    told = 0;
    assert_int_equal(settings_set("probing.sample_rate", "0.05", why, sizeof why), 0);
    assert_int_equal(settings_set("native", "off", why, sizeof why), 0);
    assert_int_equal(settings_number(SETTING_sample_rate), 50000000);
    assert_int_equal(told, 0); /* that is for the service thread */
    settings_apply(NULL, 0);
    assert_int_equal(told, 1);
    assert_string_equal(recorded, "probing.sample_rate=0.05\nprobing.native=0\n");
    /* Setting the current value again is no change. */
    assert_int_equal(settings_set("sample_rate", "0.050", why, sizeof why), 0);
    settings_apply(NULL, 0);
    assert_int_equal(told, 1);
    assert_int_equal(settings_set("sample_rate", "7e5", why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "must be 0 (no samples), 0.001 to 3600 seconds"));
    why[0] = 0;
    assert_int_equal(settings_set("nonsense", "1", why, sizeof why), -ENOENT);
    assert_non_null(strstr(why, "sample_rate"));
    settings_text(SETTING_sample_rate, text, sizeof text);
    assert_string_equal(text, "0.05");
    size_t len = settings_json(all, sizeof all);
    assert_int_equal(len, strlen(all));
    assert_non_null(strstr(all, "{\"probing.sample_rate\":{\"value\":\"0.05\","));
    assert_int_equal(all[strlen(all) - 1], '}');
    recorded[0] = 0;
    settings_apply(NULL, 1);
    assert_non_null(strstr(recorded, "probing.sample_rate=0.05\n"));
    assert_int_equal(told, 1);
    settings_watch(SETTING_sample_rate, NULL);
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
    assert_int_equal(run_trace_name(c.trace, c.trace_is_dir, "h", 2, 9, 1, 1, buf, sizeof buf), 0);
    assert_string_equal(buf, "/tmp/t.zst");
    assert_non_null(mkdtemp(dir));
    snprintf(c.trace, sizeof c.trace, "%s/t", dir);
    assert_int_equal(run_trace_name(c.trace, c.trace_is_dir, "h", 2, 9, 1, 3, buf, sizeof buf), 0);
    snprintf(want, sizeof want, "%s/t.d/h-r2-9-3.zst", dir);
    assert_string_equal(buf, want);
    assert_int_equal(run_trace_name(c.trace, c.trace_is_dir, "../a b", 2, 9, 0, 2, buf, sizeof buf),
                     0);
    snprintf(want, sizeof want, "%s/t.d/_._a_b-r2-9-2.zst", dir);
    assert_string_equal(buf, want);
    c.trace_is_dir = 1;
    assert_int_equal(run_trace_name(c.trace, c.trace_is_dir, "h", -1, 9, 1, 1, buf, sizeof buf), 0);
    snprintf(want, sizeof want, "%s/t/h-9.zst", dir);
    assert_string_equal(buf, want);
    assert_int_equal(
        run_trace_name(c.trace, c.trace_is_dir, "h", -1, 9, 1, RUN_TRIES + 1, buf, sizeof buf),
        -ENOSPC);
    assert_int_equal(run_trace_name(c.trace, c.trace_is_dir, "h", -1, 9, 1, 1, buf, 10),
                     -ENAMETOOLONG);
    snprintf(c.trace, sizeof c.trace, "/nonexistent/x/y");
    assert_int_equal(run_trace_name(c.trace, c.trace_is_dir, "h", -1, 9, 1, 1, buf, sizeof buf),
                     -ENOENT);
    snprintf(buf, sizeof buf, "%s/t.d", dir);
    rmdir(buf);
    snprintf(buf, sizeof buf, "%s/t", dir);
    rmdir(buf);
    rmdir(dir);
}

int main(void) {
    memory_init(); /* without it the environment is read by getenv() alone */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_environment_text),
        cmocka_unit_test(words_and_names),
        cmocka_unit_test(where_to),
        cmocka_unit_test(misspelt),
        cmocka_unit_test(any_environment),
        cmocka_unit_test(changes),
        cmocka_unit_test(ranks),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
