/* SPDX-License-Identifier: Apache-2.0 */
#include "need.h"

#include <ctype.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "../converter/sql_dialect.h"
#include "../converter/sql_functions.h"
#include "../converter/sql_schemas.h"
#include "../converter/sql_select.h"
#include "../converter/tables.h"
#include "../converter/vtab.h"
#include "last_calls.h"

#define BIT(type) (1ull << TRACE_##type)
#define TICKS     BIT(sample) /* samples without their stacks: which thread, and when */
#define SAMPLES   (TICKS | VTAB_STACKS)
#define FUNCTIONS                                                                                  \
    (TICKS | VTAB_FUNCTIONS) /* by function, with sums over all traces, without callers */
#define SUMS        (SAMPLES | VTAB_SUMS)
#define METRICS     (BIT(cpu) | BIT(memory) | BIT(io) | BIT(network) | BIT(gpu)) /* each second */
#define TORCH       (VTAB_STEPS | BIT(torch_cuda) | BIT(torch_memory))
#define COMM        (BIT(comm) | BIT(process_group))
#define PROGRAM     (BIT(span) | BIT(span_end) | BIT(event) | BIT(event_value))
#define NAMES       (WHAT_IT_IS | BIT(event) | BIT(event_value)) /* own_tables.h has more of them */
#define EVERYTHING  UINT64_MAX
#define NO_RECORD   0
#define WHAT_IT_IS  NEED_TRACES /* facts about the trace itself, which are always read */
#define STACK_TABLE "main.probing_stack_now"
#define VIEWS       " trace runs samples "
#define STORED      " training_log collective straggler hang " /* by schema/66_views_stored.sql */

/* The types of records that a table needs. A table that is not listed needs all: its rows are made of several types of records, or of all. */
static const struct {
    const char *table, *columns; /* columns: only for these, with blanks around; NULL: for all */
    uint64_t types;
} tables[] = {
    {"sample", " stack ", SAMPLES | VTAB_ROWS},
    {"sample", NULL, TICKS | VTAB_ROWS},
    {"stack", "  ", WHAT_IT_IS}, /* joined by a view, or counted: need_of() tells these apart */
    {"stack", NULL, SAMPLES},
    {"part", NULL, SAMPLES},
    {"frame", NULL, SAMPLES},
    {"function", NULL, FUNCTIONS},
    {"stack_total", NULL, SUMS},
    {"function_total", NULL, FUNCTIONS | VTAB_SUMS}, /* hot_functions needs less: on_read() */
    {"memory_sample", NULL, METRICS},
    {"cpu", NULL, METRICS},
    {"io", NULL, METRICS},
    {"network", NULL, METRICS},
    {"memory_step", NULL, METRICS | BIT(memory_step) | VTAB_NUMBERS},
    {"gpu", NULL, METRICS},
    {"torch_module", NULL, TORCH},
    {"torch_call", NULL, TORCH | BIT(torch_calls)},
    {"torch_step", NULL, TORCH},
    {"torch_cuda", NULL, TORCH},
    {"torch_memory", NULL, TORCH},
    {"torch_module_total", " cuda_calls cuda_ns ", TORCH | BIT(torch_calls)},
    {"torch_module_total", NULL, TORCH},
    {"comm", NULL, COMM},
    {"process_group", NULL, COMM},
    {"rank_list", NULL, COMM},
    {"group_rank", NULL, COMM},
    {"span", NULL, PROGRAM},
    {"span_end", NULL, PROGRAM},
    {"event", NULL, PROGRAM | VTAB_NUMBERS},
    {"event_value", NULL, PROGRAM},
    {"variable", NULL, BIT(variable) | VTAB_NUMBERS},
    {"trigger_event", " id ts kind tid tick detail text ", BIT(trigger)},
    {"trigger_event", NULL, BIT(trigger) | VTAB_NUMBERS},
    /* The views in VIEWS. SQLite reports what all columns of a view are made of, used or not, so for these views the columns that are read are looked up
     * here. */
    {"trace",
     " id file host boot_id pid ppid rank local_rank world_size command exe python start end clock"
     " end_reason duration period clock_uncertainty bytes blocks cwd uid agent how process_start role"
     " master finished run job attempt end_cause exit_code program ",
     WHAT_IT_IS},
    {"trace", " signal ", BIT(trigger)},
    {"trace", NULL, EVERYTHING},
    {"runs", " run traces processes ranks hosts started ended command ", WHAT_IT_IS},
    {"runs", NULL, EVERYTHING},
    {"samples", " func file lineno frame_type stack_id ", SAMPLES | VTAB_ROWS},
    {"samples", NULL, WHAT_IT_IS}, /* on_read() adds the ticks, whatever column is read */
    {"trace_file", " complete lost ", EVERYTHING},
    {"trace_file", NULL, WHAT_IT_IS},
    {"process_info", NULL, WHAT_IT_IS},
    {"setting", NULL, WHAT_IT_IS},
    {"note", NULL, WHAT_IT_IS},
    {"fact", NULL, WHAT_IT_IS},
    {"clock", NULL, WHAT_IT_IS},
    {"period", NULL, WHAT_IT_IS},
    /* Records that refer to a thread make its row. The empty column name is for a join that reads no column. */
    {"thread", "  id trace tid name ident start_ts end_ts comm ", WHAT_IT_IS},
    {"thread", " samples running cpu_us ", TICKS},
    {"sqlite_master", NULL, NAMES},
    {"json_each", NULL, NO_RECORD},
    {"generate_series", NULL, NO_RECORD},
    /* Tables of converter/sql_schemas.h. cluster.nodes is not listed, so it needs all record types: it counts lost records. */
    {"df_settings", NULL, WHAT_IT_IS},
    {"envs", NULL, WHAT_IT_IS},
    {"tables", NULL, NAMES},
    {"columns", NULL, NAMES},
    {"probing_stack_now", NULL, NO_RECORD},
};

struct need {
    uint64_t types;
    int all, thread, stack, view, other; /* view: one of VIEWS is read; other: not only a read */
    int stored;                          /* one of STORED is read */
    char *views;                         /* names of all views, with blanks around each */
};

static int is_one_of(const char *name, const char *list) {
    char word[64];

    sqlite3_snprintf(sizeof word, word, " %s ", name);
    return strstr(list, word) != NULL;
}

static int on_read(void *ctx, int action, const char *table, const char *column,
                   const char *database, const char *by) {
    struct need *n = ctx;

    (void)database;
    n->other |= action != SQLITE_READ && action != SQLITE_SELECT && action != SQLITE_FUNCTION;
    /* Only reads count here: SQLite also reports functions, and tables that it makes for virtual ones. */
    if (action != SQLITE_READ)
        return SQLITE_OK;
    if (by && is_one_of(by, VIEWS)) {
        n->view = 1;
        n->types |= strcmp(table, "sample") == 0 ? WHAT_IT_IS | TICKS | VTAB_ROWS : WHAT_IT_IS;
        return SQLITE_OK;
    }
    if (by && strcmp(by, "hot_functions") == 0 && strcmp(table, "function_total") == 0) {
        n->types |= FUNCTIONS;
        return SQLITE_OK;
    }
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (strcmp(tables[i].table, table) == 0 &&
            (!tables[i].columns || is_one_of(column, tables[i].columns))) {
            n->types |= tables[i].types;
            n->all |= tables[i].types == EVERYTHING;
            n->thread |= strcmp(table, "thread") == 0;
            n->stack |= strcmp(table, "stack") == 0;
            return SQLITE_OK;
        }
    n->stored |= is_one_of(table, STORED);
    /* A view needs nothing more, as SQLite reports what its columns are made of as well. It does not for system.process, which like any other unknown
     * table needs all. */
    n->all |= !is_one_of(table, n->views);
    n->types |= WHAT_IT_IS;
    return SQLITE_OK;
}

/* Returns the SQL with main.NAME for python.NAME, and for python.backtrace a table that needs no records, as it is the stack of a live process. Free it
 * by sqlite3_free(). */
static char *plain_names(const char *sql) {
    static const char schema[] = "python.", stack[] = "backtrace";
    sqlite3_str *out = sqlite3_str_new(NULL);

    for (const char *p = sql; *p; p++) {
        int is_name = p > sql && (isalnum((unsigned char)p[-1]) || strchr("_.$", p[-1]));
        const char *name = p + sizeof schema - 1;
        if (is_name || strncasecmp(p, schema, sizeof schema - 1) != 0) {
            sqlite3_str_appendchar(out, 1, *p);
        } else if (strncasecmp(name, stack, sizeof stack - 1) == 0) {
            sqlite3_str_appendall(out, STACK_TABLE);
            p = name + sizeof stack - 2;
        } else {
            sqlite3_str_appendall(out, "main.");
            p = name - 1;
        }
    }
    return sqlite3_str_finish(out);
}

static int plan(sqlite3 *db, const char *sql) {
    int rc = SQLITE_OK;

    while (rc == SQLITE_OK && *sql) {
        sqlite3_stmt *st = NULL;
        rc = sqlite3_prepare_v2(db, sql, -1, &st, &sql);
        sqlite3_finalize(st);
    }
    return rc;
}

static int list_views(sqlite3 *db, struct need *n) {
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(
        db, "SELECT ' ' || group_concat(name, ' ') || ' ' FROM sqlite_master WHERE type = 'view'",
        -1, &st, NULL);

    if (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        n->views = sqlite3_mprintf("%s", sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    return n->views ? SQLITE_OK : SQLITE_NOMEM;
}

static uint64_t find(const char *sql, int *stored) {
    struct need n = {0};
    char *text = NULL, *names = NULL, *plain = NULL, why[SQL_DIALECT_WHY];
    sqlite3 *db = NULL;
    int rc =
        sql_dialect(sql, &text, why) == 0 && (names = plain_names(text)) ? SQLITE_OK : SQLITE_ERROR;

    if (rc == SQLITE_OK)
        rc = sqlite3_open(":memory:", &db);
    if (rc == SQLITE_OK)
        rc = tables_make_live(db, names);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db,
                          "CREATE TABLE " STACK_TABLE "(timestamp, depth, func, file, lineno,"
                          " frame_type, module, thread, tid, pid)",
                          NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sql_functions_register(db);
    if (rc == SQLITE_OK)
        rc = sql_schemas_attach(db, names);
    if (rc == SQLITE_OK && sql_select(db, names, &plain, why) != 0)
        rc = SQLITE_ERROR;
    if (rc == SQLITE_OK)
        rc = list_views(db, &n);
    if (rc == SQLITE_OK)
        rc = sqlite3_set_authorizer(db, on_read, &n);
    if (rc == SQLITE_OK)
        rc = plan(db, plain ? plain : names);
    sqlite3_close(db);
    sqlite3_free(n.views);
    sqlite3_free(names);
    free(plain);
    free(text);
    /* SQLite does not report the columns that USING and NATURAL compare. */
    n.all |= n.view && (strcasestr(sql, "using") || strcasestr(sql, "natural"));
    n.types |= n.stack && strcasestr(sql, "stack") ? SAMPLES : 0;
    /* If only threads are read, all records are needed: any of them may be what refers to a thread. */
    n.all |= n.thread && !(n.types & ~WHAT_IT_IS);
    *stored = n.stored;
    if (rc != SQLITE_OK || n.all)
        return 0;
    return n.types || n.other ? n.types | WHAT_IT_IS : NEED_NOTHING;
}

uint64_t need_of(const char *sql) {
    int stored;

    return find(sql, &stored);
}

uint64_t need_of_live(const char *sql) {
    uint64_t need = need_of(sql);

    return need >> TRACE_torch_calls & 1 && last_calls_most(sql) ? need | VTAB_LAST_CALLS : need;
}

uint64_t need_of_part(const char *sql) {
    int stored = 1;
    uint64_t need = strcasestr(sql, "python") ? 0 : find(sql, &stored);

    if (need == NEED_NOTHING || need == NEED_TRACES)
        return NEED_TRACES;
    return need && !stored ? need | VTAB_NOT_STORED : need;
}

uint64_t need_of_traces(const char *sql) {
    /* For need_of(), python.backtrace is the stack of a live process; of traces, it is made from the samples. */
    uint64_t need = strcasestr(sql, "python") ? 0 : need_of(sql);

    return need == NEED_TRACES || need == NAMES ? need : 0;
}
