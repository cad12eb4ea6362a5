/* SPDX-License-Identifier: Apache-2.0 */
#include "callsites.h"

#include <errno.h>
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
    free(cs->used);
    memset(cs, 0, sizeof *cs);
}

/* A function's key: firstline u64, type u8, name NUL file NUL module NUL. */
uint32_t callsites_function(struct callsites *cs, enum callsite_type type, const char *name,
                            const char *file, uint64_t firstline, const char *module) {
    const char *text[3] = {name, file ? file : "", module ? module : ""};
    size_t len[3], n = 9;

    for (int i = 0; i < 3; i++)
        n += len[i] = strlen(text[i]) + 1;
    char *key = malloc(n), *p = key;
    if (!key)
        return 0;
    memcpy(p, &firstline, 8);
    p[8] = (char)type;
    p += 9;
    for (int i = 0; i < 3; p += len[i++])
        memcpy(p, text[i], len[i]);
    uint32_t id = keys_put(&cs->functions, key, n, NULL);
    free(key);
    return id;
}

uint32_t callsites_frame(struct callsites *cs, uint32_t function, uint64_t line, const char *file) {
    struct frame_key k = {line, function, 0};

    if (file && !(k.file = keys_put(&cs->files, file, strlen(file) + 1, NULL)))
        return 0;
    return keys_put(&cs->frames, &k, sizeof k, NULL);
}

uint32_t callsites_push(struct callsites *cs, uint32_t parent, uint32_t frame) {
    struct site_key k = {parent, frame};

    return keys_put(&cs->sites, &k, sizeof k, NULL);
}

int callsites_use(struct callsites *cs, uint32_t site) {
    size_t byte = site / 8;

    if (byte >= cs->used_cap) {
        size_t cap = byte * 2 + 1024;
        uint8_t *p = realloc(cs->used, cap);
        if (!p)
            return -ENOMEM;
        memset(p + cs->used_cap, 0, cap - cs->used_cap);
        cs->used = p;
        cs->used_cap = cap;
    }
    cs->used[byte] |= (uint8_t)(1u << site % 8);
    return 0;
}

static int is_used(const struct callsites *cs, uint32_t site) {
    return site / 8 < cs->used_cap && (cs->used[site / 8] >> site % 8 & 1);
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

    for (uint32_t id = 1; rc == SQLITE_OK && id <= cs->functions.n; id++) {
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

    for (uint32_t id = 1; rc == SQLITE_OK && id <= cs->frames.n; id++) {
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

static int write_sites(const struct callsites *cs, sqlite3 *db) {
    sqlite3_stmt *st;
    uint32_t *depth = malloc(((size_t)cs->sites.n + 1) * sizeof *depth);
    int rc = sqlite3_prepare_v2(
        db, "INSERT INTO callsite(id, parent, depth, frame) VALUES(?,?,?,?)", -1, &st, NULL);

    if (!depth)
        rc = SQLITE_NOMEM;
    for (uint32_t id = 1; rc == SQLITE_OK && id <= cs->sites.n; id++) {
        const struct site_key *k = keys_key(&cs->sites, id, NULL);
        depth[id] = k->parent ? depth[k->parent] + 1 : 0; /* parents come first */
        sqlite3_bind_int64(st, 1, id);
        if (k->parent)
            sqlite3_bind_int64(st, 2, k->parent);
        else
            sqlite3_bind_null(st, 2);
        sqlite3_bind_int64(st, 3, depth[id]);
        sqlite3_bind_int64(st, 4, k->frame);
        rc = step(st);
    }
    sqlite3_finalize(st);
    free(depth);
    return rc;
}

/* The closure of the trie over the stacks that samples have: a row for each frame of each. */
static int write_stacks(const struct callsites *cs, sqlite3 *db) {
    sqlite3_stmt *st;
    uint32_t *seen = calloc((size_t)cs->functions.n + 1, sizeof *seen);
    int rc = sqlite3_prepare_v2(
        db, "INSERT INTO stack_frame(stack, depth, frame, first, leaf) VALUES(?,?,?,?,?)", -1, &st,
        NULL);

    if (!seen)
        rc = SQLITE_NOMEM;
    for (uint32_t id = 1; rc == SQLITE_OK && id <= cs->sites.n; id++) {
        if (!is_used(cs, id))
            continue;
        const struct site_key *k;
        uint32_t depth = 0;
        int python = 0;
        for (uint32_t site = id; rc == SQLITE_OK && site; site = k->parent) {
            k = keys_key(&cs->sites, site, NULL);
            const struct frame_key *f = keys_key(&cs->frames, k->frame, NULL);
            sqlite3_bind_int64(st, 1, id);
            sqlite3_bind_int64(st, 2, depth++);
            sqlite3_bind_int64(st, 3, k->frame);
            sqlite3_bind_int(st, 4, seen[f->function] != id);
            seen[f->function] = id;
            const char *function = keys_key(&cs->functions, f->function, NULL);
            int is_python = function[8] == CALLSITE_PYTHON;
            sqlite3_bind_int(st, 5, is_python && !python);
            python |= is_python;
            rc = step(st);
        }
    }
    sqlite3_finalize(st);
    free(seen);
    return rc;
}

int callsites_write(const struct callsites *cs, sqlite3 *db) {
    int rc = write_functions(cs, db);

    if (rc == SQLITE_OK)
        rc = write_frames(cs, db);
    if (rc == SQLITE_OK)
        rc = write_sites(cs, db);
    if (rc == SQLITE_OK)
        rc = write_stacks(cs, db);
    return rc;
}
