/* SPDX-License-Identifier: Apache-2.0 */
#include "append.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"

static sqlite3_int64 more_row(uint32_t trace, enum append_more what) {
    return APPEND_MORE_BELOW - 4 * (sqlite3_int64)trace - what;
}

/* Appends the blob of the row more_row() to *p, which has *n bytes. When there is no such row, does nothing. */
static int add_more(sqlite3 *db, uint32_t trace, enum append_more what, void **p, size_t *n) {
    sqlite3_blob *b = NULL;
    int rc = sqlite3_blob_open(db, "main", "trace_read", "addresses", more_row(trace, what), 0, &b);

    if (rc != SQLITE_OK) {
        sqlite3_blob_close(b);
        return SQLITE_OK;
    }
    int bytes = sqlite3_blob_bytes(b);
    uint8_t *all = realloc(*p, *n + (size_t)bytes + 1);
    if (all) {
        *p = all;
        rc = sqlite3_blob_read(b, all + *n, bytes, 0);
        *n += rc == SQLITE_OK ? (size_t)bytes : 0;
    }
    int rc2 = sqlite3_blob_close(b);
    return !all ? SQLITE_NOMEM : rc != SQLITE_OK ? rc : rc2;
}

/* Takes the trace's row of trace_read, if it has one that says how far it was read. */
static int take_read(struct append_trace *t, sqlite3 *db, sqlite3_stmt *st, int is_cache) {
    uint64_t *const to[] = {&t->at.blocks,       &t->at.digest,  &t->at.last,
                            &t->at.eval,         &t->at.modules, &t->at.modules_digest,
                            &t->at.modules_last, &t->at.names,   &t->rows.periods};

    for (size_t i = 0; i < sizeof to / sizeof *to; i++)
        *to[i] = (uint64_t)sqlite3_column_int64(st, (int)i + 3);
    const void *p = sqlite3_column_blob(st, 12);
    size_t n = (size_t)sqlite3_column_bytes(st, 12);
    if (sqlite3_column_type(st, 3) == SQLITE_NULL)
        return SQLITE_OK;
    int rc = add_more(db, t->id, APPEND_ADDRESSES, &t->kept, &t->nkept);
    t->nbase = t->nkept;
    if (rc == SQLITE_OK && is_cache) /* read only there, since the places in it are trusted */
        rc = add_more(db, t->id, APPEND_DICTIONARY, &t->dictionary, &t->ndictionary);
    if (rc == SQLITE_OK && is_cache)
        rc = add_more(db, t->id, APPEND_BLOCKS, &t->blocks, &t->nblocks);
    void *all = rc == SQLITE_OK ? realloc(t->kept, t->nkept + n + 1) : NULL;
    if (!all)
        return rc == SQLITE_OK ? SQLITE_NOMEM : rc;
    t->kept = all;
    if (n)
        memcpy((uint8_t *)all + t->nkept, p, n);
    t->nkept += n;
    return SQLITE_OK;
}

static int load_traces(struct append *a, sqlite3 *db) {
    /* A trace whose steps were all evaluation so far is not continued: it may have given out step numbers that a later step takes back. In
     * most traces the first steps show that this is not the case. */
    static const char sql[] =
        "SELECT f.id, f.recording, f.bytes, r.blocks, r.digest, r.last, r.eval, r.modules, r.modules_digest, r.modules_last, r.names, f.periods, r.addresses"
        " FROM trace_file f LEFT JOIN trace_read r ON r.trace = f.id"
        " AND (EXISTS (SELECT 1 FROM torch_step s WHERE s.id BETWEEN f.first_id AND f.last_id AND s.source <> 3 AND s.duration IS NOT NULL)"
        "  OR NOT EXISTS (SELECT 1 FROM torch_step s WHERE s.id BETWEEN f.first_id AND f.last_id AND s.source = 3))";
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

    while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(st, 1);
        uint32_t id = (uint32_t)sqlite3_column_int64(st, 0);
        a->last = id > a->last ? id : a->last;
        rc = SQLITE_OK;
        if (!name)
            continue;
        int64_t bytes = sqlite3_column_int64(st, 2);
        if (strncmp(name, "part ", 5) == 0) { /* only a part of it was converted */
            name += 5;
            bytes = -1;
        }
        uint32_t n = keys_put(&a->names, name, strlen(name), NULL);
        if (n > a->cap) {
            size_t cap = a->cap * 2 + 64;
            void *p = realloc(a->trace, cap * sizeof *a->trace);
            a->trace = p ? p : a->trace;
            a->cap = p ? cap : a->cap;
        }
        if (n == 0 || n > a->cap) {
            rc = SQLITE_NOMEM;
            continue;
        }
        a->trace[n - 1] = (struct append_trace){.id = id, .bytes = bytes};
        if (bytes >= 0)
            rc = take_read(&a->trace[n - 1], db, st, a->is_cache);
    }
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Loads what else is needed to continue the traces: their threads, and what they had lost. by: index of a trace + 1, by trace id. */
static int load_rows_of(struct append *a, sqlite3 *db, const uint32_t *by) {
    sqlite3_stmt *st = NULL;
    sqlite3_int64 bare = 0, threads = 0;
    int rc = sql_number(
        db, "SELECT EXISTS(SELECT 1 FROM function WHERE type = 1 AND module IS NULL)", &bare);

    if (rc == SQLITE_OK)
        rc = sql_number(db, "SELECT count(*) FROM thread", &threads);
    a->tids = malloc(((size_t)threads + 1) * sizeof *a->tids);
    if (rc == SQLITE_OK)
        rc = a->tids ? sqlite3_prepare_v2(db, "SELECT id >> 40, tid FROM thread ORDER BY id", -1,
                                          &st, NULL)
                     : SQLITE_NOMEM;
    for (size_t i = 0; rc == SQLITE_OK && (int64_t)i < threads && sqlite3_step(st) == SQLITE_ROW;
         i++) {
        int64_t id = sqlite3_column_int64(st, 0);
        struct append_trace *t = id > 0 && id <= a->last && by[id] ? &a->trace[by[id] - 1] : NULL;
        a->tids[i] = (uint64_t)sqlite3_column_int64(st, 1);
        if (t && !t->rows.threads++)
            t->rows.tids = &a->tids[i];
    }
    rc = sql_end(st, rc);
    st = NULL;
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, "SELECT trace, reason, count FROM lost", -1, &st, NULL);
    while (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW) {
        int64_t id = sqlite3_column_int64(st, 0);
        const char *reason = (const char *)sqlite3_column_text(st, 1);
        for (unsigned k = 0; id > 0 && id <= a->last && by[id] && k < TRACE_NLOST; k++)
            if (reason && strcmp(reason, trace_lost_name(k)) == 0)
                a->trace[by[id] - 1].rows.lost[k] = (uint64_t)sqlite3_column_int64(st, 2);
    }
    for (uint32_t i = 0; i < a->names.n; i++)
        a->trace[i].rows.has_bare = bare != 0;
    return sql_end(st, rc);
}

int append_load(struct append *a, sqlite3 *db, int is_cache) {
    memset(a, 0, sizeof *a);
    a->is_cache = is_cache;
    keys_init(&a->names);
    int rc = load_traces(a, db);
    uint32_t *by = rc == SQLITE_OK ? calloc((size_t)a->last + 1, sizeof *by) : NULL;
    for (uint32_t i = 0; by && i < a->names.n; i++)
        by[a->trace[i].id] = i + 1;
    if (rc == SQLITE_OK)
        rc = by ? load_rows_of(a, db, by) : SQLITE_NOMEM;
    free(by);
    return rc;
}

void append_free(struct append *a) {
    for (uint32_t i = 0; i < a->names.n; i++) {
        free(a->trace[i].kept);
        free(a->trace[i].dictionary);
        free(a->trace[i].blocks);
    }
    keys_free(&a->names);
    free(a->trace);
    free(a->tids);
    memset(a, 0, sizeof *a);
}

struct reader_stored *append_blocks(const struct append *a, size_t *n) {
    struct reader_stored *v = calloc((size_t)a->names.n + 1, sizeof *v);

    *n = 0;
    for (uint32_t i = 0; v && i < a->names.n; i++)
        if (a->trace[i].nblocks)
            v[(*n)++] = (struct reader_stored){a->trace[i].blocks, a->trace[i].nblocks};
    return v;
}

const struct append_trace *append_find(const struct append *a, const char *recording) {
    uint32_t n = a->names.n ? keys_find(&a->names, recording, strlen(recording)) : 0;

    return n ? &a->trace[n - 1] : NULL;
}

int append_has_others(const struct append *a, const struct align *al, size_t ntraces) {
    uint8_t *seen = calloc((size_t)a->names.n + 1, 1);
    uint32_t n = 0;

    for (size_t i = 0; seen && a->names.n && i < ntraces; i++) {
        char name[META_RECORDING];
        align_recording(al, i, name);
        uint32_t id = keys_find(&a->names, name, strlen(name));
        n += id && !seen[id];
        seen[id] = 1;
    }
    free(seen);
    return n < a->names.n;
}

/* Deletes what is said of the trace as a whole, or derived from all of it, as it is made anew. load_torch.h handles torch's calls. */
int append_reopen(sqlite3 *db, uint32_t trace) {
    static const char sql[] =
        "DELETE FROM trace_file WHERE id = %1$u; DELETE FROM trace_read WHERE trace = %1$u; DELETE FROM lost WHERE trace = %1$u;"
        "DELETE FROM period WHERE trace = %1$u; DELETE FROM torch_module_total WHERE trace = %1$u";
    char text[sizeof sql + 128];

    snprintf(text, sizeof text, sql, trace);
    return sqlite3_exec(db, text, NULL, NULL, NULL);
}

/* Each table refers to its trace by a column `trace`, `id` or `thread`, except the tables that all traces share. */
int append_forget(sqlite3 *db, uint32_t trace) {
    static const char tables[] =
        "SELECT m.name, max(c.name = 'trace'), max(c.name = 'id'), max(c.name = 'thread') FROM sqlite_master m, pragma_table_info(m.name) c"
        " WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' AND m.name NOT IN"
        " ('function', 'frame', 'stack', 'part', 'clock_boot', 'clock_knot', 'trace_file') GROUP BY m.name";
    char *sql = sqlite3_mprintf(
        "DELETE FROM trace_file WHERE id = %u; DELETE FROM trace_read WHERE trace IN (%lld, %lld, %lld);",
        trace, more_row(trace, APPEND_ADDRESSES), more_row(trace, APPEND_DICTIONARY),
        more_row(trace, APPEND_BLOCKS));
    long long base = (long long)trace << 40;
    sqlite3_stmt *st;
    int rc = sql ? sqlite3_prepare_v2(db, tables, -1, &st, NULL) : SQLITE_NOMEM;

    if (rc != SQLITE_OK) {
        sqlite3_free(sql);
        return rc;
    }
    while (sql && sqlite3_step(st) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(st, 0);
        char *more = NULL;
        if (sqlite3_column_int(st, 1))
            more = sqlite3_mprintf("%s DELETE FROM \"%w\" WHERE trace = %u;", sql, name, trace);
        else if (sqlite3_column_int(st, 2) || sqlite3_column_int(st, 3))
            more = sqlite3_mprintf("%s DELETE FROM \"%w\" WHERE %s BETWEEN %lld AND %lld;", sql,
                                   name, sqlite3_column_int(st, 2) ? "id" : "thread", base,
                                   base | 0xffffffffff);
        else
            continue;
        sqlite3_free(sql);
        sql = more;
    }
    rc = sql_end(st, sql ? SQLITE_OK : SQLITE_NOMEM);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    sqlite3_free(sql);
    return rc;
}

int append_clocks(sqlite3 *db, struct align *al) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(
        db,
        "SELECT b.id, b.boot_id, b.\"group\", k.mono, k.utc, b.method, coalesce(b.uncertainty_ns, -1) FROM clock_boot b LEFT JOIN clock_knot k ON k.boot = b.id"
        " ORDER BY b.id, k.mono",
        -1, &st, NULL);

    while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *boot = (const char *)sqlite3_column_text(st, 1);
        int knot = sqlite3_column_type(st, 3) == SQLITE_INTEGER;
        rc = align_known(al, (uint32_t)sqlite3_column_int64(st, 0), boot ? boot : "",
                         (unsigned)sqlite3_column_int(st, 2), knot, sqlite3_column_int64(st, 3),
                         sqlite3_column_int64(st, 4)) == 0
                 ? SQLITE_OK
                 : SQLITE_NOMEM;
        const char *method = (const char *)sqlite3_column_text(st, 5);
        align_known_how(al, boot ? boot : "", method ? method : "", sqlite3_column_double(st, 6));
    }
    sqlite3_finalize(st);
    if (rc == SQLITE_DONE)
        rc = sqlite3_prepare_v2(
            db,
            "SELECT " ALIGN_KEY
            " AS key, max(max(coalesce(end_ts, 0), coalesce(finish_ts, 0))) FROM trace_file WHERE key IS NOT NULL GROUP BY 1",
            -1, &st, NULL);
    else
        return rc;
    while (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        align_known_until(al, (const char *)sqlite3_column_text(st, 0),
                          sqlite3_column_int64(st, 1));
    return rc == SQLITE_OK ? sqlite3_finalize(st) : rc;
}

int append_keep(sqlite3 *db, uint32_t trace, const struct resume *at, const void *kept, size_t n) {
    const uint64_t v[] = {at->blocks,  at->digest,         at->last,         at->eval,
                          at->modules, at->modules_digest, at->modules_last, at->names};
    sqlite3_stmt *st;
    int rc =
        sqlite3_prepare_v2(db, "INSERT INTO trace_read VALUES(?,?,?,?,?,?,?,?,?,?)", -1, &st, NULL);

    if (rc != SQLITE_OK)
        return rc;
    sqlite3_bind_int64(st, 1, trace);
    for (int i = 0; i < 8; i++)
        sqlite3_bind_int64(st, i + 2, (sqlite3_int64)v[i]);
    sqlite3_bind_blob64(st, 10, kept, n, SQLITE_STATIC);
    sqlite3_step(st);
    return sqlite3_finalize(st);
}

/* Writes the blob into an existing row, because the value of a statement would be copied once more. */
int append_keep_more(sqlite3 *db, uint32_t trace, enum append_more what, const void *kept,
                     size_t n) {
    sqlite3_blob *b = NULL;
    char *sql = sqlite3_mprintf("INSERT OR REPLACE INTO trace_read"
                                " VALUES(%lld, 0, 0, 0, 0, 0, 0, 0, 0, zeroblob(%llu))",
                                more_row(trace, what), (unsigned long long)n);
    int rc = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;

    sqlite3_free(sql);
    if (rc == SQLITE_OK)
        rc = sqlite3_blob_open(db, "main", "trace_read", "addresses", more_row(trace, what), 1, &b);
    if (rc == SQLITE_OK)
        rc = sqlite3_blob_write(b, kept, (int)n, 0);
    int rc2 = sqlite3_blob_close(b);
    return rc == SQLITE_OK ? rc2 : rc;
}
