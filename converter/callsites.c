/* SPDX-License-Identifier: Apache-2.0 */
#include "callsites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "digest.h"

struct frame_key {
    uint64_t line;
    uint32_t function, file; /* file: id in files, 0: none */
};

struct site_key {
    uint32_t parent, frame;
};

void callsites_init(struct callsites *cs) {
    memset(cs, 0, sizeof *cs);
}

int callsites_init_rows(struct callsites *cs, struct queue *rows) {
    callsites_init(cs);
    cs->rows = rows;
    cs->known_functions.most = cs->known_frames.most = KNOWN_SOME;
    return digest_seed(cs->seed);
}

void callsites_free(struct callsites *cs) {
    keys_free(&cs->functions);
    keys_free(&cs->frames);
    keys_free(&cs->sites);
    keys_free(&cs->files);
    known_free(&cs->known_functions);
    known_free(&cs->known_frames);
    free(cs->types);
    free(cs->function_of);
    memset(cs, 0, sizeof *cs);
}

#define FRAME_WORDS 6

#define KEY_TEXT 9 /* offset of the texts in a function's key */

/* Makes a function's key: firstline u64, type u8, name NUL file NUL module NUL, padded with NULs to a multiple of 4 bytes. malloc'ed; NULL:
 * no memory. */
static char *function_key(enum callsite_type type, const char *name, const char *file,
                          uint64_t firstline, const char *module, size_t *size) {
    const char *text[3] = {name, file ? file : "", module ? module : ""};
    size_t len[3], n = KEY_TEXT;

    for (int i = 0; i < 3; i++)
        n += len[i] = strlen(text[i]) + 1;
    char *key = calloc(1, n + 3), *p = key;
    *size = n;
    if (!key)
        return NULL;
    memcpy(p, &firstline, 8);
    p[8] = (char)type;
    p += KEY_TEXT;
    for (int i = 0; i < 3; p += len[i++])
        memcpy(p, text[i], len[i]);
    return key;
}

/* Makes space for n elements in an array, which may move. Returns 0 or -ENOMEM. */
static int reserve(void *array, size_t *cap, size_t n, size_t size) {
    void *old, *p;

    if (n <= *cap)
        return 0;
    n += n / 2 + 1024;
    memcpy(&old, array, sizeof old);
    if (!(p = realloc(old, n * size)))
        return -ENOMEM;
    memcpy(array, &p, sizeof p);
    *cap = n;
    return 0;
}

/* Returns the number of the thing described by n words; a new one gets the next number. 0: no memory. */
static uint32_t number_of(struct callsites *cs, struct known *set, const void *words, size_t n,
                          uint32_t *last, int *is_new) {
    struct digest d = digest(cs->seed, words, n), *at = known_at(set, &d);

    *is_new = at && !at->id;
    if (*is_new) {
        d.id = ++*last;
        known_put(set, at, &d);
    }
    return at ? at->id : 0;
}

/* Queues the function's row. Returns 0 or -ENOMEM. */
static int put_function(struct queue *q, uint32_t id, const char *key, size_t n) {
    uint64_t firstline;

    memcpy(&firstline, key, sizeof firstline);
    queue_lock(q);
    struct queue_row *r = queue_row(q, QUEUE_FUNCTION, n - KEY_TEXT);
    if (r) {
        r->v[0] = id;
        r->v[1] = key[8];
        r->v[2] = (int64_t)firstline;
        memcpy(queue_text(q, r), key + KEY_TEXT, n - KEY_TEXT);
        queue_text_end(q, r, n - KEY_TEXT);
    }
    queue_unlock(q);
    return r ? 0 : -ENOMEM;
}

static uint32_t function_of(struct callsites *cs, enum callsite_type type, const char *key,
                            size_t n, int *is_new) {
    uint32_t id;

    if (!cs->rows) {
        id = keys_put(&cs->functions, key, n, is_new);
        cs->nfunctions = cs->functions.n;
        return id;
    }
    if (reserve(&cs->types, &cs->types_cap, cs->nfunctions + 2, sizeof *cs->types) != 0)
        return 0;
    id = number_of(cs, &cs->known_functions, key, (n + 3) / 4, &cs->nfunctions, is_new);
    if (*is_new)
        cs->types[id] = (uint8_t)type;
    return id;
}

uint32_t callsites_function(struct callsites *cs, enum callsite_type type, const char *name,
                            const char *file, uint64_t firstline, const char *module) {
    size_t n;
    int is_new = 0;
    char *key = function_key(type, name, file, firstline, module, &n);
    uint32_t id = key ? function_of(cs, type, key, n, &is_new) : 0;

    if (is_new && cs->rows && put_function(cs->rows, id, key, n) != 0)
        id = 0;
    free(key);
    return id;
}

int callsites_has(const struct callsites *cs, enum callsite_type type, const char *name,
                  const char *file, uint64_t firstline) {
    size_t n;
    char *key = function_key(type, name, file, firstline, NULL, &n);
    int is_there = !key;

    if (key && cs->rows) {
        struct digest d = digest(cs->seed, (const uint32_t *)(const void *)key, (n + 3) / 4);
        is_there = known_has(&cs->known_functions, &d);
    } else if (key)
        is_there = keys_find(&cs->functions, key, n) != 0;
    free(key);
    return is_there;
}

static int put_frame(struct queue *q, uint32_t id, const struct frame_key *k, const char *file) {
    size_t n = strlen(file) + 1;

    queue_lock(q);
    struct queue_row *r = queue_row(q, QUEUE_FRAME, n);
    if (r) {
        r->v[0] = id;
        r->v[1] = k->function;
        r->v[2] = (int64_t)k->line;
        memcpy(queue_text(q, r), file, n);
        queue_text_end(q, r, n);
    }
    queue_unlock(q);
    return r ? 0 : -ENOMEM;
}

/* Makes the words that a frame's hash is computed from; they are the same in each program, because the file is represented by its hash.
 * Returns 0 or -ENOMEM. */
static int frame_words(const struct callsites *cs, uint32_t function, uint64_t line,
                       const char *file, uint32_t words[FRAME_WORDS]) {
    size_t n = file ? strlen(file) + 1 : 0;
    uint32_t *text = n ? calloc((n + 3) / 4, 4) : NULL;

    if (n && !text)
        return -ENOMEM;
    if (n)
        memcpy(text, file, n);
    struct digest d = n ? digest(cs->seed, text, (n + 3) / 4) : (struct digest){0};
    const uint32_t all[FRAME_WORDS] = {(uint32_t)line, (uint32_t)(line >> 32), function,
                                       (uint32_t)d.a,  (uint32_t)(d.a >> 32),  d.b};
    memcpy(words, all, sizeof all);
    free(text);
    return 0;
}

static uint32_t frame_of(struct callsites *cs, uint32_t function, uint64_t line, const char *file,
                         int *is_new, struct frame_key *k) {
    *k = (struct frame_key){line, function, 0};
    if (!cs->rows) {
        if (file && !(k->file = keys_put(&cs->files, file, strlen(file) + 1, NULL)))
            return 0;
        uint32_t id = keys_put(&cs->frames, k, sizeof *k, is_new);
        cs->nframes = cs->frames.n;
        return id;
    }
    if (reserve(&cs->function_of, &cs->frames_cap, cs->nframes + 2, sizeof *cs->function_of) != 0)
        return 0;
    uint32_t words[FRAME_WORDS];
    if (frame_words(cs, function, line, file, words) != 0)
        return 0;
    uint32_t id = number_of(cs, &cs->known_frames, words, FRAME_WORDS, &cs->nframes, is_new);
    if (*is_new)
        cs->function_of[id] = function;
    return id;
}

uint32_t callsites_frame(struct callsites *cs, uint32_t function, uint64_t line, const char *file) {
    struct frame_key k;
    int is_new = 0;

    if (cs->no_frames)
        return function;
    uint32_t id = frame_of(cs, function, line, file, &is_new, &k);

    return is_new && cs->rows && put_frame(cs->rows, id, &k, file ? file : "") != 0 ? 0 : id;
}

struct callsites_frame callsites_frame_of(const struct callsites *cs, uint32_t frame) {
    if (cs->rows)
        return (struct callsites_frame){.function = cs->no_frames ? frame : cs->function_of[frame],
                                        .file = ""};
    const struct frame_key *k = keys_key(&cs->frames, frame, NULL);

    return (struct callsites_frame){k->function, k->line,
                                    k->file ? keys_key(&cs->files, k->file, NULL) : ""};
}

struct callsites_function callsites_function_of(const struct callsites *cs, uint32_t function) {
    const char *key = keys_key(&cs->functions, function, NULL);
    struct callsites_function f = {.type = (enum callsite_type)key[8], .name = key + KEY_TEXT};

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
    return cs->rows
               ? (enum callsite_type)cs->types[function]
               : (enum callsite_type)((const char *)keys_key(&cs->functions, function, NULL))[8];
}

/* Gives the n-th row number n, even when an equal row came before it (callsites.h). Returns an SQLite result code. */
static int learn(struct callsites *cs, struct known *set, const void *words, size_t n,
                 uint32_t *last, int64_t wanted) {
    struct digest d = digest(cs->seed, words, n);

    d.id = ++*last;
    return d.id != wanted ? SQLITE_CORRUPT : known_set(set, &d) ? SQLITE_NOMEM : SQLITE_OK;
}

static int learn_function(struct callsites *cs, sqlite3_stmt *st) {
    enum callsite_type type = (enum callsite_type)sqlite3_column_int(st, 1);
    size_t n;
    char *key = function_key(
        type, (const char *)sqlite3_column_text(st, 2), (const char *)sqlite3_column_text(st, 3),
        (uint64_t)sqlite3_column_int64(st, 4), (const char *)sqlite3_column_text(st, 5), &n);
    int rc = SQLITE_NOMEM;

    if (key && reserve(&cs->types, &cs->types_cap, cs->nfunctions + 2, sizeof *cs->types) == 0)
        rc = learn(cs, &cs->known_functions, key, (n + 3) / 4, &cs->nfunctions,
                   sqlite3_column_int64(st, 0));
    if (rc == SQLITE_OK)
        cs->types[cs->nfunctions] = (uint8_t)type;
    free(key);
    return rc;
}

static int learn_frame(struct callsites *cs, sqlite3_stmt *st) {
    /* otherwise the file is the function's */
    const char *own = sqlite3_column_int(st, 4) == CALLSITE_NATIVE
                          ? (const char *)sqlite3_column_text(st, 3)
                          : NULL;
    uint32_t function = (uint32_t)sqlite3_column_int64(st, 1), words[FRAME_WORDS];

    if (frame_words(cs, function, (uint64_t)sqlite3_column_int64(st, 2), own, words) != 0 ||
        reserve(&cs->function_of, &cs->frames_cap, cs->nframes + 2, sizeof *cs->function_of) != 0)
        return SQLITE_NOMEM;
    int rc = function && function <= cs->nfunctions
                 ? learn(cs, &cs->known_frames, words, FRAME_WORDS, &cs->nframes,
                         sqlite3_column_int64(st, 0))
                 : SQLITE_CORRUPT;
    if (rc == SQLITE_OK)
        cs->function_of[cs->nframes] = function;
    return rc;
}

static int read_rows(struct callsites *cs, sqlite3 *db, const char *sql,
                     int (*take)(struct callsites *, sqlite3_stmt *)) {
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL), err = SQLITE_OK;

    while (rc == SQLITE_OK && err == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        err = take(cs, st);
    rc = rc == SQLITE_OK ? sqlite3_finalize(st) : rc;
    return err == SQLITE_OK ? rc : err;
}

int callsites_read(struct callsites *cs, sqlite3 *db) {
    int rc = read_rows(cs, db,
                       "SELECT id, type, name, file, firstline, module FROM function ORDER BY id",
                       learn_function);

    return rc == SQLITE_OK
               ? read_rows(cs, db, "SELECT id, function, line, file, type FROM frame ORDER BY id",
                           learn_frame)
               : rc;
}
