/* SPDX-License-Identifier: Apache-2.0 */
#include "callsites.h"

#include <stdlib.h>
#include <string.h>

struct frame_key {
    uint64_t line;
    uint32_t function, file; /* file: id in files, 0 none */
};

struct site_key {
    uint32_t parent, frame;
};

void callsites_init(struct callsites *cs) {
    memset(cs, 0, sizeof *cs);
}

void callsites_free(struct callsites *cs) {
    keys_free(&cs->functions);
    keys_free(&cs->frames);
    keys_free(&cs->sites);
    keys_free(&cs->files);
    memset(cs, 0, sizeof *cs);
}

/* A function's key: firstline u64, type u8, name NUL file NUL module NUL. malloc; NULL: no memory. */
static char *function_key(enum callsite_type type, const char *name, const char *file,
                          uint64_t firstline, const char *module, size_t *size) {
    const char *text[3] = {name, file ? file : "", module ? module : ""};
    size_t len[3], n = 9;

    for (int i = 0; i < 3; i++)
        n += len[i] = strlen(text[i]) + 1;
    char *key = malloc(*size = n), *p = key;
    if (!key)
        return NULL;
    memcpy(p, &firstline, 8);
    p[8] = (char)type;
    p += 9;
    for (int i = 0; i < 3; p += len[i++])
        memcpy(p, text[i], len[i]);
    return key;
}

uint32_t callsites_function(struct callsites *cs, enum callsite_type type, const char *name,
                            const char *file, uint64_t firstline, const char *module) {
    size_t n;
    char *key = function_key(type, name, file, firstline, module, &n);
    uint32_t id = key ? keys_put(&cs->functions, key, n, NULL) : 0;

    free(key);
    return id;
}

int callsites_has(const struct callsites *cs, enum callsite_type type, const char *name,
                  const char *file, uint64_t firstline) {
    size_t n;
    char *key = function_key(type, name, file, firstline, NULL, &n);
    int is_there = !key || (cs->functions.n && keys_find(&cs->functions, key, n));

    free(key);
    return is_there;
}

uint32_t callsites_frame(struct callsites *cs, uint32_t function, uint64_t line, const char *file) {
    struct frame_key k = {line, function, 0};

    if (file && !(k.file = keys_put(&cs->files, file, strlen(file) + 1, NULL)))
        return 0;
    return keys_put(&cs->frames, &k, sizeof k, NULL);
}

struct callsites_frame callsites_frame_of(const struct callsites *cs, uint32_t frame) {
    const struct frame_key *k = keys_key(&cs->frames, frame, NULL);

    return (struct callsites_frame){k->function, k->line,
                                    k->file ? keys_key(&cs->files, k->file, NULL) : ""};
}

struct callsites_function callsites_function_of(const struct callsites *cs, uint32_t function) {
    const char *key = keys_key(&cs->functions, function, NULL);
    struct callsites_function f = {.type = (enum callsite_type)key[8], .name = key + 9};

    memcpy(&f.firstline, key, 8);
    f.file = f.name + strlen(f.name) + 1;
    f.module = f.file + strlen(f.file) + 1;
    return f;
}

uint32_t callsites_push(struct callsites *cs, uint32_t parent, uint32_t frame) {
    struct site_key k = {parent, frame};

    return keys_put(&cs->sites, &k, sizeof k, NULL);
}

uint32_t callsites_site_of(const struct callsites *cs, uint32_t site, uint32_t *parent) {
    const struct site_key *k = keys_key(&cs->sites, site, NULL);

    *parent = k->parent;
    return k->frame;
}

enum callsite_type callsites_type_of(const struct callsites *cs, uint32_t function) {
    return (enum callsite_type)((const char *)keys_key(&cs->functions, function, NULL))[8];
}

static int step(sqlite3_stmt *st) {
    int rc = sqlite3_step(st);

    sqlite3_reset(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static void bind_text(sqlite3_stmt *st, int i, const char *text) {
    if (*text)
        sqlite3_bind_text(st, i, text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_null(st, i);
}

static int write_functions(const struct callsites *cs, sqlite3 *db) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db,
                                "INSERT INTO function(id, type, name, file, firstline, module)"
                                " VALUES(?,?,?,?,?,?)",
                                -1, &st, NULL);

    for (uint32_t id = cs->had_functions + 1; rc == SQLITE_OK && id <= cs->functions.n; id++) {
        const char *key = keys_key(&cs->functions, id, NULL);
        const char *name = key + 9, *file = name + strlen(name) + 1;
        uint64_t firstline;
        memcpy(&firstline, key, 8);
        sqlite3_bind_int64(st, 1, id);
        sqlite3_bind_int(st, 2, key[8]);
        sqlite3_bind_text(st, 3, name, -1, SQLITE_STATIC);
        bind_text(st, 4, file);
        if (firstline)
            sqlite3_bind_int64(st, 5, (sqlite3_int64)firstline);
        else
            sqlite3_bind_null(st, 5);
        bind_text(st, 6, file + strlen(file) + 1);
        rc = step(st);
    }
    sqlite3_finalize(st);
    return rc;
}

static int write_frames(const struct callsites *cs, sqlite3 *db) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, "INSERT INTO frame(id, function, line, file) VALUES(?,?,?,?)",
                                -1, &st, NULL);

    for (uint32_t id = cs->had_frames + 1; rc == SQLITE_OK && id <= cs->frames.n; id++) {
        const struct frame_key *k = keys_key(&cs->frames, id, NULL);
        sqlite3_bind_int64(st, 1, id);
        sqlite3_bind_int64(st, 2, k->function);
        if (k->line)
            sqlite3_bind_int64(st, 3, (sqlite3_int64)k->line);
        else
            sqlite3_bind_null(st, 3);
        bind_text(st, 4, k->file ? keys_key(&cs->files, k->file, NULL) : "");
        rc = step(st);
    }
    sqlite3_finalize(st);
    return rc;
}

/* Numbers are given in order, so that those of the database come again. */
int callsites_read(struct callsites *cs, sqlite3 *db) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(
        db, "SELECT id, type, name, file, firstline, module FROM function ORDER BY id", -1, &st,
        NULL);

    while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        uint32_t id = callsites_function(
            cs, (enum callsite_type)sqlite3_column_int(st, 1),
            (const char *)sqlite3_column_text(st, 2), (const char *)sqlite3_column_text(st, 3),
            (uint64_t)sqlite3_column_int64(st, 4), (const char *)sqlite3_column_text(st, 5));
        rc = id == 0                             ? SQLITE_NOMEM
             : id == sqlite3_column_int64(st, 0) ? SQLITE_OK
                                                 : SQLITE_CORRUPT;
    }
    sqlite3_finalize(st);
    if (rc == SQLITE_DONE)
        rc = sqlite3_prepare_v2(db, "SELECT id, function, line, file FROM frame ORDER BY id", -1,
                                &st, NULL);
    else
        st = NULL;
    while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        uint32_t id = callsites_frame(cs, (uint32_t)sqlite3_column_int64(st, 1),
                                      (uint64_t)sqlite3_column_int64(st, 2),
                                      (const char *)sqlite3_column_text(st, 3));
        rc = id == 0                             ? SQLITE_NOMEM
             : id == sqlite3_column_int64(st, 0) ? SQLITE_OK
                                                 : SQLITE_CORRUPT;
    }
    sqlite3_finalize(st);
    cs->had_functions = cs->functions.n;
    cs->had_frames = cs->frames.n;
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int callsites_write(const struct callsites *cs, sqlite3 *db) {
    int rc = write_functions(cs, db);

    return rc == SQLITE_OK ? write_frames(cs, db) : rc;
}
