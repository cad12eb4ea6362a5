/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that is recorded can be queried: each record of kind DATA, and each of its fields, changes the database that a trace is
 * converted to. A new record or field that is not loaded fails here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

#include "converter/convert.h"
#include "synthetic.h"
#include "traces/torch_events.h"
#include "traces/varint.h"

#define TS (SYNTHETIC_MONO + 5000000)
#ifdef __SANITIZE_ADDRESS__ /* each conversion takes four times as long */
#define EVERY 6
#else
#define EVERY 1
#endif
enum { STACK = 0x900000, OTHER_STACK, MODULE = 0x71, OTHER_MODULE, NAME = 0x81 };

static char dir[] = "/tmp/test_tables.XXXXXX", path[64];

static int setup(void **state) {
    (void)state;
    snprintf(path, sizeof path, "%s/t.zst", mkdtemp(dir) ? dir : "/nowhere");
    return access(dir, W_OK);
}

static int teardown(void **state) {
    (void)state;
    unlink(path);
    return rmdir(dir);
}

/* Makes a value for field i, and another one if `odd`. Fields by which the records of a trace refer to each other keep their meaning: names,
 * states, kinds. */
static void fill(const struct trace_record *rec, unsigned i, int odd, struct writer_value *v) {
    static const uint64_t list[] = {3, 1, 4};
    static uint8_t events[64];
    const struct trace_field *f = &rec->fields[i];
    uint8_t *p = events;
    *v = synthetic_u(odd ? 2 : 1);
    switch (f->type) {
    case TRACE_T:
    case TRACE_TUS:
        *v = synthetic_u(odd ? TS + 2000 : TS);
        break;
    case TRACE_F:
        *v = synthetic_u(odd ? 0x4000000000000000u : 0x3ff0000000000000u); /* 2.0, 1.0 */
        break;
    case TRACE_STR:
    case TRACE_TXT:
        *v = synthetic_s(odd ? "y" : "x");
        break;
    case TRACE_REF:
        *v = synthetic_u((f->ref == TRACE_stack ? (unsigned)STACK : (unsigned)MODULE) + !!odd);
        break;
    case TRACE_REFS:
    case TRACE_US:
        *v = (struct writer_value){.p = list, .n = odd ? 2 : 3};
        break;
    case TRACE_BIN: /* a module's forward and a step of the optimizer */
        p = varint_put(varint_put(p, TORCH_ENTER | 1 << 4), 5);
        p = varint_put(varint_put(p, TORCH_EXIT), odd ? 70 : 7);
        p = varint_put(varint_put(p, TORCH_STEP | TORCH_BY_OPTIMIZER << 4), 7);
        p = varint_put(varint_put(p, 1), 7);
        *v = (struct writer_value){.p = events, .n = (size_t)(p - events)};
        break;
    default:
        if (rec->id == TRACE_thread && i == TRACE_thread_state)
            *v = synthetic_u(!odd); /* gone, alive */
        break;
    }
}

/* Returns whether the record has fields that must fit the one that is tested (fit()), as the kind of a value, which is a number or a text. */
static int is_fitted(const struct trace_record *rec) {
    return rec->id == TRACE_event_value || rec->id == TRACE_process || rec->id == TRACE_symbol ||
           rec->id == TRACE_variable;
}

static void fit(const struct trace_record *rec, unsigned field, struct writer_value *v) {
    if (rec->id == TRACE_event_value && field == TRACE_event_value_text)
        v[TRACE_event_value_kind].u = 3;
    if (rec->id == TRACE_process &&
        field == TRACE_process_run) /* where no launcher names the job */
        v[TRACE_process_job].n = 0;
    if (rec->id == TRACE_symbol && field != TRACE_symbol_flags)
        v[TRACE_symbol_flags].u = 0; /* the only one of its address */
    if (rec->id == TRACE_variable && field == TRACE_variable_text)
        v[TRACE_variable_kind].u = 3;
}

/* Makes a trace with one record of this kind (NULL: none), to test its field `field`, which has another value if `odd`. */
static void make(const struct trace_record *rec, unsigned field, int odd) {
    struct synthetic s = {.stacks = 2};
    struct writer_value v[TRACE_MAX_FIELDS] = {{.u = 0}};
    struct writer *w;
    unlink(path);
    assert_int_equal(writer_open(&w, &(struct writer_options){.trace_path = path, .run_dir = dir}),
                     0);
    synthetic_process(w, &s);
    synthetic_clock(w, SYNTHETIC_MONO);
    synthetic_config(w, "probing.sample_rate", "0.001");
    synthetic_dictionary(w, &s);
    for (unsigned i = 0; i < 2; i++) {
        struct writer_value m[TRACE_module_NFIELDS] = {{.u = 0}},
                            f[TRACE_native_file_NFIELDS] = {{.u = 0}},
                            n[TRACE_torch_name_NFIELDS] = {{.u = 0}};
        m[TRACE_module_key] = synthetic_u(MODULE + i);
        m[TRACE_module_path] = synthetic_s(i ? "/lib/b.so" : "/lib/a.so");
        m[TRACE_module_start] = synthetic_u(0x10000 + 0x10000 * i);
        m[TRACE_module_end] = synthetic_u(0x20000 + 0x10000 * i);
        m[TRACE_module_bias] = m[TRACE_module_start];
        f[TRACE_native_file_key] = m[TRACE_module_key];
        f[TRACE_native_file_path] = m[TRACE_module_path];
        assert_int_equal(writer_emit(w, TRACE_native_file, f), 0);
        assert_int_equal(writer_emit(w, TRACE_module, m), 0);
        n[TRACE_torch_name_key] = synthetic_u(NAME + i);
        n[TRACE_torch_name_name] = synthetic_s("Model");
        assert_int_equal(writer_emit(w, TRACE_torch_name, n), 0);
    }
    if (rec && rec->id == TRACE_symbol) { /* of the address that this one is at */
        struct writer_value at[TRACE_sample_NFIELDS] = {{.u = TS}};
        at[TRACE_sample_stack] = synthetic_u(STACK);
        at[TRACE_sample_pc] = synthetic_u(0x10001);
        at[TRACE_sample_count] = synthetic_u(1);
        assert_int_equal(writer_emit(w, TRACE_sample, at), 0);
    }
    for (unsigned i = 0; rec && i < rec->nfields; i++)
        fill(rec, i, odd && i == field, &v[i]);
    if (rec) {
        fit(rec, field, v);
        assert_int_equal(writer_emit(w, rec->id, v), 0);
    }
    synthetic_clock(w, SYNTHETIC_MONO + 10000000);
    assert_int_equal(writer_close(w, "exit"), 0);
}

static uint64_t hash(uint64_t h, const void *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const uint8_t *)p)[i]) * 0x100000001b3u;
    return (h ^ n) * 0x100000001b3u;
}

/* Returns a digest of all rows of all tables, without what is known about the file itself. */
static uint64_t database(void) {
    struct convert_options opt = {0};
    struct convert_result res;
    struct inputs in = {0};
    sqlite3_stmt *tables, *rows;
    uint64_t h = 1;
    assert_int_equal(inputs_add(&in, path, 0), 0);
    int rc = convert(&in, &opt, &res);
    if (rc)
        fail_msg("%s", res.error);
    inputs_free(&in);
    /* Nothing is lost except what a row of `children` says. */
    assert_int_equal(
        sqlite3_prepare_v2(res.db, "SELECT 1 FROM lost WHERE reason <> 'child'", -1, &rows, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_step(rows), SQLITE_DONE);
    sqlite3_finalize(rows);
    assert_int_equal(
        sqlite3_prepare_v2(res.db,
                           "SELECT name FROM sqlite_master WHERE type = 'table'"
                           " AND name <> 'clock' AND name NOT LIKE 'sqlite%' ORDER BY 1",
                           -1, &tables, NULL),
        SQLITE_OK);
    while (sqlite3_step(tables) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(tables, 0);
        char query[512];
        snprintf(query, sizeof query, "SELECT %s FROM \"%s\"",
                 strcmp(name, "trace_file") == 0
                     ? "host, boot_id, pid, ppid, uid, rank, local_rank,"
                       " world_size, exe, command, cwd, python, agent, how, role,"
                       " master, run, job"
                     : "*",
                 name);
        h = hash(h, name, strlen(name));
        assert_int_equal(sqlite3_prepare_v2(res.db, query, -1, &rows, NULL), SQLITE_OK);
        while (sqlite3_step(rows) == SQLITE_ROW)
            for (int i = 0; i < sqlite3_column_count(rows); i++) {
                const void *value = sqlite3_column_blob(rows, i);
                h = hash(h, value ? value : "", (size_t)sqlite3_column_bytes(rows, i));
            }
        sqlite3_finalize(rows);
    }
    sqlite3_finalize(tables);
    sqlite3_close(res.db);
    return h;
}

static void every_record_has_a_table(void **state) {
    (void)state;
    make(NULL, 0, 0);
    uint64_t without = database();
    assert_true(without == database());
    for (unsigned id = 1; id <= TRACE_MAX_ID; id++) {
        const struct trace_record *rec = trace_record_by_id(id);
        if (!rec || rec->kind != TRACE_KIND_DATA || id % EVERY)
            continue;
        make(rec, 0, 0);
        if (database() == without)
            fail_msg("nothing in the database tells of %s", rec->name);
    }
}

/* Fields that no table has, and why. */
static const char *const left_out[] = {
    "process.eval_start", "process.eval_end", "process.cold_start",
    "process.cold_end", /* where the interpreter's loop lies: stacks are merged by it */
    "process_group.ts", /* what is known of a group is so for the whole trace */
};

/* Returns whether the record is loaded: all that a trace says about itself, except for how it is read. */
static int is_loaded(const struct trace_record *rec) {
    return rec && (rec->kind == TRACE_KIND_DATA ||
                   (rec->kind == TRACE_KIND_META && rec->id != TRACE_schema &&
                    rec->id != TRACE_clock && rec->id != TRACE_end));
}

static void every_field_is_loaded(void **state) {
    unsigned wrong = 0;
    (void)state;
    for (unsigned id = 1; id <= TRACE_MAX_ID; id++) {
        const struct trace_record *rec = trace_record_by_id(id);
        uint64_t one = 0;
        for (unsigned i = 0; is_loaded(rec) && i < rec->nfields; i++) {
            char name[64];
            int known = 0;
            if ((id + i) % EVERY)
                continue;
            snprintf(name, sizeof name, "%s.%s", rec->name, rec->fields[i].name);
            for (size_t k = 0; k < sizeof left_out / sizeof *left_out; k++)
                known |= strcmp(name, left_out[k]) == 0;
            if (!one || is_fitted(rec)) {
                make(rec, i, 0);
                one = database();
            }
            make(rec, i, 1);
            if ((database() == one) == known)
                continue;
            print_error("%s: %s\n", name,
                        known ? "it is loaded" : "nothing in the database tells of it");
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_record_has_a_table),
        cmocka_unit_test(every_field_is_loaded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
