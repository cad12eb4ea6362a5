/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_schemas.h"

#include <stdio.h>
#include <string.h>

#define OBJECTS                                                                                    \
    "FROM main.sqlite_master m WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite_%'"

#define NODES                                                                                               \
    "SELECT host, boot_id, count(*) AS traces, count(DISTINCT rank) AS ranks, min(rank) AS first_rank,"     \
    " max(rank) AS last_rank, max(world_size) AS world_size, min(start) AS started, max(\"end\") AS ended," \
    " sum(complete) AS complete, sum(lost) AS lost FROM main.trace GROUP BY host, boot_id"
#define ATTACHED                                                                                                    \
    "SELECT json_extract(value, '$.host') AS host, group_concat(json_extract(value, '$.address'), ', ') AS address" \
    " FROM json_each(attached_nodes()) GROUP BY 1"

/* Grouped by schema. */
static const struct name {
    const char *schema, *name, *sql;
} names[] = {
    {"information_schema", "tables",
     "SELECT 'probing' AS table_catalog, 'main' AS table_schema, m.name AS table_name,"
     " CASE m.type WHEN 'view' THEN 'VIEW' ELSE 'BASE TABLE' END AS table_type " OBJECTS
     " UNION ALL SELECT 'probing', column1, column2, 'VIEW' FROM (VALUES('information_schema', 'tables'),"
     "('information_schema', 'columns'), ('information_schema', 'df_settings'), ('system', 'process'),"
     "('process', 'envs'), ('cluster', 'nodes'))"},
    {"information_schema", "columns",
     "SELECT 'probing' AS table_catalog, 'main' AS table_schema, m.name AS table_name,"
     " c.name AS column_name, c.cid + 1 AS ordinal_position, c.dflt_value AS column_default,"
     " CASE WHEN c.\"notnull\" OR c.pk THEN 'NO' ELSE 'YES' END AS is_nullable, c.type AS data_type"
     " FROM main.sqlite_master m JOIN pragma_table_info(m.name) c"
     " WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite_%'"},
    {"information_schema", "views",
     "SELECT 'probing' AS table_catalog, 'main' AS table_schema, m.name AS table_name, m.sql AS definition"
     " FROM main.sqlite_master m WHERE m.type = 'view'"},
    {"information_schema", "schemata",
     "SELECT 'probing' AS catalog_name, name AS schema_name FROM pragma_database_list"},
    /* the last value of each setting; for several traces one row for each different value */
    {"information_schema", "df_settings",
     "SELECT key AS name, value, count(*) AS traces FROM (SELECT key, value, max(timestamp) FROM main.config"
     " GROUP BY trace_id, key) GROUP BY key, value ORDER BY key"},
    {"system", "process", "SELECT * FROM main.process"},
    /* with the hosts of `probing cluster attach`, when a function tells them as a JSON array of {host, address}; of two entries with the
     * same name the first that can be made is used */
    {"cluster", "nodes",
     "SELECT n.*, a.address FROM (" NODES ") n LEFT JOIN (" ATTACHED ") a ON a.host = n.host"
     " UNION ALL SELECT host, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, address FROM (" ATTACHED
     ") WHERE host NOT IN (SELECT host FROM main.trace WHERE host IS NOT NULL)"},
    {"cluster", "nodes", "SELECT n.*, NULL AS address FROM (" NODES ") n"},
    {"process", "envs", "SELECT key AS name, value, trace_id, rank FROM main.environment"},
};
#define NNAMES (sizeof names / sizeof *names)

struct names_table {
    sqlite3_vtab base;
    sqlite3 *db;
    char *sql, *columns; /* columns: their names, each quoted and followed by a NUL */
    int n;
};
struct names_cursor {
    sqlite3_vtab_cursor base;
    sqlite3_stmt *st;
    sqlite3_int64 row;
    int more;
};

/* 'it''s' -> it's; allocated by SQLite. */
static char *names_unquote(const char *arg) {
    size_t n = 0, len = strlen(arg);
    char *out = sqlite3_malloc64(len + 1);

    for (size_t i = 1; out && i + 1 < len; i++) {
        out[n++] = arg[i];
        i += arg[i] == '\'';
    }
    if (out)
        out[n] = '\0';
    return out;
}

/* The argument is a quoted SELECT. */
static int names_connect_table(sqlite3 *db, void *aux, int argc, const char *const *argv,
                               sqlite3_vtab **out, char **error) {
    sqlite3_stmt *st = NULL;
    char *text = NULL, *sql = argc > 3 ? names_unquote(argv[3]) : NULL;
    struct names_table *t = NULL;

    (void)aux;
    if (!sql)
        return argc > 3 ? SQLITE_NOMEM : SQLITE_ERROR;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    if (rc != SQLITE_OK) {
        *error = sqlite3_mprintf("%s", sqlite3_errmsg(db));
        sqlite3_free(sql);
        return rc;
    }
    sqlite3_str *columns = sqlite3_str_new(db);
    int n = sqlite3_column_count(st);
    for (int c = 0; c < n; c++) {
        const char *name = sqlite3_column_name(st, c);
        text = sqlite3_mprintf("%z%s\"%w\"", text, c ? "," : "CREATE TABLE t(", name);
        sqlite3_str_appendf(columns, "\"%w\"", name);
        sqlite3_str_appendchar(columns, 1, '\0');
    }
    sqlite3_finalize(st);
    text = sqlite3_mprintf("%z)", text);
    rc = text ? sqlite3_declare_vtab(db, text) : SQLITE_NOMEM;
    sqlite3_free(text);
    char *all = sqlite3_str_finish(columns);
    if (rc == SQLITE_OK && (!all || !(t = sqlite3_malloc(sizeof *t))))
        rc = SQLITE_NOMEM;
    if (rc == SQLITE_OK) {
        *t = (struct names_table){.db = db, .sql = sql, .columns = all, .n = n};
        *out = &t->base;
    } else {
        sqlite3_free(sql);
        sqlite3_free(all);
    }
    return rc;
}

static int names_disconnect(sqlite3_vtab *base) {
    struct names_table *t = (struct names_table *)base;

    sqlite3_free(t->sql);
    sqlite3_free(t->columns);
    sqlite3_free(t);
    return SQLITE_OK;
}

/* Always returns all rows, by a SELECT of just the columns that are read: a column of a view costs the same whether it is read or not, and
 * torch_trace has some that are looked up for each row. */
static int names_best_index(sqlite3_vtab *base, sqlite3_index_info *info) {
    const struct names_table *t = (struct names_table *)base;
    sqlite3_str *sql = sqlite3_str_new(t->db);
    const char *name = t->columns;

    sqlite3_str_appendall(sql, "SELECT ");
    for (int c = 0; c < t->n; c++, name += strlen(name) + 1) {
        /* the last bit stands for all other columns */
        int is_read = (int)(info->colUsed >> (c < 63 ? c : 63) & 1);
        sqlite3_str_appendf(sql, "%s%s", c ? "," : "", is_read ? name : "NULL");
    }
    sqlite3_str_appendf(sql, " FROM (%s)", t->sql);
    info->idxStr = sqlite3_str_finish(sql);
    info->needToFreeIdxStr = 1;
    info->estimatedCost = 1000; /* there are few rows */
    info->estimatedRows = 1000;
    return info->idxStr ? SQLITE_OK : SQLITE_NOMEM;
}

static int names_open_cursor(sqlite3_vtab *base, sqlite3_vtab_cursor **out) {
    struct names_cursor *c = sqlite3_malloc(sizeof *c);

    (void)base;
    if (!c)
        return SQLITE_NOMEM;
    memset(c, 0, sizeof *c);
    *out = &c->base;
    return SQLITE_OK;
}

static int names_close_cursor(sqlite3_vtab_cursor *base) {
    struct names_cursor *c = (struct names_cursor *)base;

    sqlite3_finalize(c->st);
    sqlite3_free(c);
    return SQLITE_OK;
}

/* Passes on the error of the SELECT behind the table; otherwise the user would see "SQL logic error". */
static int names_failed(sqlite3_vtab *base, int rc) {
    sqlite3_free(base->zErrMsg);
    base->zErrMsg = sqlite3_mprintf("%s", sqlite3_errmsg(((struct names_table *)base)->db));
    return rc;
}

static int names_next_row(sqlite3_vtab_cursor *base) {
    struct names_cursor *c = (struct names_cursor *)base;
    int rc = sqlite3_step(c->st);

    c->more = rc == SQLITE_ROW;
    c->row++;
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : names_failed(base->pVtab, rc);
}

static int names_filter(sqlite3_vtab_cursor *base, int index, const char *text, int argc,
                        sqlite3_value **argv) {
    struct names_cursor *c = (struct names_cursor *)base;
    sqlite3 *db = ((struct names_table *)base->pVtab)->db;

    (void)index, (void)argc, (void)argv;
    c->row = 0;
    if (c->st) /* it has the same plan */
        sqlite3_reset(c->st);
    else if (sqlite3_prepare_v2(db, text, -1, &c->st, NULL) != SQLITE_OK)
        return names_failed(base->pVtab, sqlite3_errcode(db));
    return names_next_row(base);
}

static int names_at_end(sqlite3_vtab_cursor *base) {
    return !((struct names_cursor *)base)->more;
}

static int names_column_value(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int i) {
    sqlite3_result_value(ctx, sqlite3_column_value(((struct names_cursor *)base)->st, i));
    return SQLITE_OK;
}

static int names_row_id(sqlite3_vtab_cursor *base, sqlite3_int64 *out) {
    *out = ((struct names_cursor *)base)->row;
    return SQLITE_OK;
}

const char *sql_schemas_reads(unsigned i) {
    return i < NNAMES ? names[i].sql : NULL;
}

int sql_schemas_names(const char *sql, unsigned i) {
    return strcasestr(sql, names[i].schema) && strcasestr(sql, names[i].name);
}

/* Returns 1 for SQL that asks which schemas and names there are, without naming those it means. */
static int is_about_names(const char *sql) {
    return strcasestr(sql, "database") || strcasestr(sql, "schemata") ||
           strcasestr(sql, "pragma") || strcasestr(sql, "sqlite_");
}

int sql_schemas_may_name(const char *sql, const char *schema) {
    return strcasestr(sql, schema) || is_about_names(sql);
}

/* Returns 1 when name i must be made. Making a name plans its SELECT, which takes longer than most answers. */
static int is_wanted(const char *sql, unsigned i) {
    return !sql || is_about_names(sql) || sql_schemas_names(sql, i);
}

int sql_schemas_attach(sqlite3 *db, const char *sql) {
    static const sqlite3_module module = {
        .xCreate = names_connect_table,
        .xConnect = names_connect_table,
        .xBestIndex = names_best_index,
        .xDisconnect = names_disconnect,
        .xDestroy = names_disconnect,
        .xOpen = names_open_cursor,
        .xClose = names_close_cursor,
        .xFilter = names_filter,
        .xNext = names_next_row,
        .xEof = names_at_end,
        .xColumn = names_column_value,
        .xRowid = names_row_id,
    };
    const char *where =
        sqlite3_db_readonly(db, "main") == 1 ? "file:names?mode=memory" : ":memory:";
    char attach[256];
    int rc = sqlite3_create_module(db, "probing_name", &module, NULL);

    const char *attached = "";
    for (unsigned i = 0; rc == SQLITE_OK && i < NNAMES; i++) {
        if (!is_wanted(sql, i))
            continue;
        if (strcmp(names[i].schema, attached) != 0) {
            attached = names[i].schema;
            snprintf(attach, sizeof attach, "ATTACH '%s' AS %s", where, attached);
            rc = sqlite3_exec(db, attach, NULL, NULL, NULL);
            if (rc != SQLITE_OK)
                break;
        }
        char *create = sqlite3_mprintf("CREATE VIRTUAL TABLE %s.%s USING probing_name(%Q)",
                                       names[i].schema, names[i].name, names[i].sql);
        if (!create)
            rc = SQLITE_NOMEM;
        else
            sqlite3_exec(db, create, NULL, NULL, NULL); /* fails where `main` lacks what it reads */
        sqlite3_free(create);
    }
    return rc;
}
