/* SPDX-License-Identifier: Apache-2.0 */
#include "kept_numbers.h"

#include <stdlib.h>
#include <string.h>

/* maximum number of rows, one for each question; then they are merged into one */
#define ROWS_MOST 32

/* Header of a row. It is followed by the hashes, kind by kind, then by the types of the new functions, then by the functions of the new frames. */
struct head {
    uint64_t seed[2][2]; /* of callsites and of the stackset */
    uint32_t before[KEPT_SORTS], last[KEPT_SORTS], n[KEPT_SORTS]; /* n: numbers of hashes */
};

static const struct known *known_of(const struct callsites *cs, const struct stackset *s, int i) {
    const struct known *const all[] = {&cs->known_functions, &cs->known_frames, &s->parts,
                                       &s->stacks};

    return all[i];
}

static void last_of(const struct callsites *cs, const struct stackset *s, uint32_t *last) {
    const uint32_t all[] = {cs->nfunctions, cs->nframes, s->nparts, s->nstacks};

    memcpy(last, all, sizeof all);
}

/* Resets everything as if nothing had been taken. */
static void forget(struct kept_numbers *k, struct callsites *cs, struct stackset *s) {
    known_free(&cs->known_functions);
    known_free(&cs->known_frames);
    known_free(&s->parts);
    known_free(&s->stacks);
    cs->nfunctions = cs->nframes = s->nparts = s->nstacks = 0;
    *k = (struct kept_numbers){0};
}

static int grow(void *array, size_t *cap, size_t n, size_t size) {
    void *old, *p;

    memcpy(&old, array, sizeof old);
    if (n <= *cap)
        return 1;
    if (!(p = realloc(old, n * size)))
        return 0;
    memcpy(array, &p, sizeof p);
    *cap = n;
    return 1;
}

static size_t size_of(const struct head *h) {
    size_t n = sizeof *h;

    for (int i = 0; i < KEPT_SORTS; i++)
        n += (size_t)h->n[i] * sizeof(struct digest);
    return n + (h->last[KEPT_FUNCTIONS] - h->before[KEPT_FUNCTIONS]) +
           (size_t)(h->last[KEPT_FRAMES] - h->before[KEPT_FRAMES]) * sizeof(uint32_t);
}

/* Returns 1: the row was taken; 0: it does not fit; -1: no memory. */
static int take_row(struct kept_numbers *k, struct callsites *cs, struct stackset *s,
                    const uint8_t *p, size_t size) {
    struct known *const sets[] = {&cs->known_functions, &cs->known_frames, &s->parts, &s->stacks};
    struct head h;

    if (!p || size < sizeof h)
        return 0;
    memcpy(&h, p, sizeof h);
    for (int i = 0; i < KEPT_SORTS; i++)
        if (h.before[i] != k->last[i] || h.last[i] < h.before[i] ||
            h.n[i] > h.last[i] - h.before[i])
            return 0;
    if (size != size_of(&h) || (k->rows && (memcmp(cs->seed, h.seed[0], sizeof cs->seed) != 0 ||
                                            memcmp(s->seed, h.seed[1], sizeof s->seed) != 0)))
        return 0;
    memcpy(cs->seed, h.seed[0], sizeof cs->seed);
    memcpy(s->seed, h.seed[1], sizeof s->seed);
    p += sizeof h;
    for (int i = 0; i < KEPT_SORTS; i++) {
        if (known_reserve(sets[i], h.n[i]) != 0)
            return -1;
        for (uint32_t n = 0; n < h.n[i]; n++, p += sizeof(struct digest)) {
            struct digest d;
            memcpy(&d, p, sizeof d);
            if (d.id <= h.before[i] || d.id > h.last[i])
                return 0;
            if (known_set(sets[i], &d) != 0)
                return -1;
        }
    }
    if (!grow(&cs->types, &cs->types_cap, (size_t)h.last[KEPT_FUNCTIONS] + 1, sizeof *cs->types) ||
        !grow(&cs->function_of, &cs->frames_cap, (size_t)h.last[KEPT_FRAMES] + 1,
              sizeof *cs->function_of))
        return -1;
    for (uint32_t i = h.before[KEPT_FUNCTIONS]; i < h.last[KEPT_FUNCTIONS]; i++)
        cs->types[i + 1] = *p++;
    for (uint32_t i = h.before[KEPT_FRAMES]; i < h.last[KEPT_FRAMES]; i++, p += sizeof(uint32_t)) {
        memcpy(&cs->function_of[i + 1], p, sizeof(uint32_t));
        if (!cs->function_of[i + 1] || cs->function_of[i + 1] > h.last[KEPT_FUNCTIONS])
            return 0;
    }
    memcpy(k->last, h.last, sizeof k->last);
    k->rows++;
    return 1;
}

/* Checks that the tables end at the same numbers as the hashes. Returns an SQLite result code. */
static int check_tables(const struct kept_numbers *k, sqlite3 *db, int *is_right) {
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(
        db,
        "SELECT max(id) FROM function UNION ALL SELECT max(id) FROM frame UNION ALL SELECT max(id) FROM part UNION ALL SELECT max(id) FROM stack",
        -1, &st, NULL);

    *is_right = 1;
    for (int i = 0; rc == SQLITE_OK && i < KEPT_SORTS && sqlite3_step(st) == SQLITE_ROW; i++)
        *is_right &= sqlite3_column_int64(st, 0) == k->last[i];
    return rc == SQLITE_OK ? sqlite3_finalize(st) : rc;
}

int kept_numbers_load(struct kept_numbers *k, sqlite3 *db, struct callsites *cs,
                      struct stackset *s) {
    sqlite3_stmt *st = NULL;
    int taken = 1, is_right = 1;
    int rc = sqlite3_prepare_v2(
        db,
        "SELECT addresses FROM trace_read WHERE trace BETWEEN -1048575 AND 0 ORDER BY trace DESC",
        -1, &st, NULL);

    *k = (struct kept_numbers){0};
    while (rc == SQLITE_OK && taken > 0 && sqlite3_step(st) == SQLITE_ROW) {
        const uint8_t *p = sqlite3_column_blob(st, 0);
        taken = take_row(k, cs, s, p, (size_t)sqlite3_column_bytes(st, 0));
    }
    rc = rc == SQLITE_OK ? sqlite3_finalize(st) : rc;
    if (rc == SQLITE_OK && k->rows && taken > 0)
        rc = check_tables(k, db, &is_right);
    cs->nfunctions = k->last[KEPT_FUNCTIONS];
    cs->nframes = k->last[KEPT_FRAMES];
    s->nparts = k->last[KEPT_PARTS];
    s->nstacks = k->last[KEPT_STACKS];
    if (rc != SQLITE_OK || taken <= 0 || !is_right)
        forget(k, cs, s);
    return taken < 0 ? SQLITE_NOMEM : rc;
}

/* Writes to `out` (NULL: only counts) the hashes of the set whose numbers are above `before`. Returns how many there are. */
static uint32_t put_hashes(const struct known *set, uint32_t before, uint8_t *out) {
    const struct known_table *const tables[] = {&set->before, &set->now};
    uint32_t n = 0;

    for (int t = 0; t < 2; t++)
        for (size_t i = 0; tables[t]->slots && i <= tables[t]->mask; i++) {
            const struct digest *d = &tables[t]->slots[i];
            /* a hash in both tables counts once */
            if (d->id <= before || (t == 0 && known_is_now(set, d)))
                continue;
            if (out)
                memcpy(out + n * sizeof *d, d, sizeof *d);
            n++;
        }
    return n;
}

static uint8_t *make_row(const struct head *h, const struct callsites *cs,
                         const struct stackset *s) {
    uint8_t *row = malloc(size_of(h)), *p = row;

    if (!row)
        return NULL;
    memcpy(p, h, sizeof *h);
    p += sizeof *h;
    for (int i = 0; i < KEPT_SORTS; i++)
        p += put_hashes(known_of(cs, s, i), h->before[i], p) * sizeof(struct digest);
    for (uint32_t i = h->before[KEPT_FUNCTIONS]; i < h->last[KEPT_FUNCTIONS]; i++)
        *p++ = cs->types[i + 1];
    for (uint32_t i = h->before[KEPT_FRAMES]; i < h->last[KEPT_FRAMES]; i++, p += sizeof(uint32_t))
        memcpy(p, &cs->function_of[i + 1], sizeof(uint32_t));
    return row;
}

int kept_numbers_save(struct kept_numbers *k, sqlite3 *db, const struct callsites *cs,
                      const struct stackset *s) {
    struct head h = {0};
    sqlite3_stmt *st = NULL;
    int rc = SQLITE_OK;

    last_of(cs, s, h.last);
    if (memcmp(h.last, k->last, sizeof h.last) == 0)
        return SQLITE_OK;
    if (k->rows == 0 || k->rows >= ROWS_MOST) {
        rc = sqlite3_exec(db, "DELETE FROM trace_read WHERE trace BETWEEN -1048575 AND 0", NULL,
                          NULL, NULL);
        *k = (struct kept_numbers){0};
    }
    memcpy(h.seed[0], cs->seed, sizeof h.seed[0]);
    memcpy(h.seed[1], s->seed, sizeof h.seed[1]);
    memcpy(h.before, k->last, sizeof h.before);
    for (int i = 0; i < KEPT_SORTS; i++)
        h.n[i] = put_hashes(known_of(cs, s, i), h.before[i], NULL);
    uint8_t *row = make_row(&h, cs, s);
    if (!row)
        return SQLITE_NOMEM;
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, "INSERT INTO trace_read VALUES(?, 0, 0, 0, 0, 0, 0, 0, 0, ?)",
                                -1, &st, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_bind_int64(st, 1, -(sqlite3_int64)k->rows);
        sqlite3_bind_blob64(st, 2, row, size_of(&h), SQLITE_STATIC);
        sqlite3_step(st);
        rc = sqlite3_finalize(st);
    }
    free(row);
    memcpy(k->last, h.last, sizeof k->last);
    k->rows++;
    return rc;
}
