/* SPDX-License-Identifier: Apache-2.0 */
#include "stackset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"

#define READ_MOST (256 << 10) /* number of parts in a database that are read: 16 MB of frames */

int stackset_init(struct stackset *s, const struct callsites *cs, struct queue *rows) {
    memset(s, 0, sizeof *s);
    s->cs = cs;
    s->rows = rows;
    s->stacks.most = KNOWN_MANY;
    s->parts.most = KNOWN_SOME;
    return digest_seed(s->seed);
}

void stackset_free(struct stackset *s) {
    known_free(&s->stacks);
    known_free(&s->parts);
    free(s->seen);
    memset(s, 0, sizeof *s);
}

static char *put_number(char *p, int64_t v) {
    char digits[20];
    int n = 0;

    if (v < 0) {
        *p++ = '-';
        v = -v;
    }
    do
        digits[n++] = (char)('0' + v % 10);
    while (v /= 10);
    while (n)
        *p++ = digits[--n];
    return p;
}

/* Writes ids as JSON, [1,-2,3], with marked ones negative. */
static void put_list(struct queue *q, struct queue_row *row, const uint32_t *ids, size_t n) {
    char *begin = queue_text(q, row), *p = begin;

    for (size_t i = 0; i < n; i++) {
        int64_t id = ids[i] & ~STACKSET_AGAIN;
        *p++ = i ? ',' : '[';
        p = put_number(p, ids[i] & STACKSET_AGAIN ? -id : id);
    }
    *p++ = ']';
    queue_text_end(q, row, (size_t)(p - begin));
}

static uint32_t part(struct stackset *s, const uint32_t *frames, size_t n) {
    struct digest d = digest(s->seed, frames, n), *at = known_at(&s->parts, &d);

    if (!at || at->id)
        return at ? at->id : 0;
    struct queue_row *r = queue_row(s->rows, QUEUE_PART, n * 12 + 2);
    if (!r)
        return 0;
    r->v[0] = d.id = ++s->nparts;
    known_put(&s->parts, at, &d);
    put_list(s->rows, r, frames, n);
    return d.id;
}

int stackset_mark(struct stackset *s, uint32_t *frames, size_t n, uint32_t *leaf) {
    if (s->seen_cap <= s->cs->nfunctions) {
        size_t cap = (size_t)s->cs->nfunctions / 8 * 9 + 1024;
        uint32_t *p = realloc(s->seen, cap * sizeof *p);
        if (!p)
            return -ENOMEM;
        memset(p + s->seen_cap, 0, (cap - s->seen_cap) * sizeof *p);
        s->seen = p;
        s->seen_cap = cap;
    }
    if (++s->stamp == 0) {
        memset(s->seen, 0, s->seen_cap * sizeof *s->seen);
        s->stamp = 1;
    }
    *leaf = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        uint32_t function = callsites_function_in(s->cs, frames[i]);
        if (*leaf == n && callsites_type_of(s->cs, function) == CALLSITE_PYTHON)
            *leaf = (uint32_t)i;
        if (s->seen[function] == s->stamp)
            frames[i] |= STACKSET_AGAIN;
        s->seen[function] = s->stamp;
    }
    return 0;
}

/* Queues the rows of a new stack. Call with the lock held. */
static uint32_t put_new(struct stackset *s, const uint32_t *frames, size_t n, uint32_t leaf) {
    uint32_t few[256], *parts = few;
    size_t last = (n - 1) % STACKSET_PART + 1, nparts = 0; /* the innermost part may be shorter */

    if (n / STACKSET_PART + 1 > sizeof few / sizeof *few &&
        !(parts = malloc((n / STACKSET_PART + 1) * sizeof *parts)))
        return 0;
    uint32_t id;
    size_t i = 0;
    do {
        id = parts[nparts++] = part(s, frames + i, i ? STACKSET_PART : last);
        i += nparts == 1 ? last : STACKSET_PART;
    } while (i < n && id);
    struct queue_row *r = id ? queue_row(s->rows, QUEUE_STACK, nparts * 12 + 2) : NULL;
    if (r) {
        id = ++s->nstacks;
        r->v[0] = id;
        r->v[1] = (int64_t)n;
        r->v[2] = *frames;
        r->v[3] = leaf;
        put_list(s->rows, r, parts, nparts);
    }
    if (parts != few)
        free(parts);
    return r ? id : 0;
}

uint32_t stackset_put(struct stackset *s, uint32_t *frames, size_t n, uint32_t *leaf) {
    struct digest d = digest(s->seed, frames, n), *at = known_at(&s->stacks, &d);

    if (!at || stackset_mark(s, frames, n, leaf) != 0)
        return 0;
    if (!at->id) {
        queue_lock(s->rows);
        d.id = put_new(s, frames, n, *leaf);
        queue_unlock(s->rows);
        if (d.id)
            known_put(&s->stacks, at, &d);
    }
    return at->id;
}

/* Reads the numbers of a list written by put_list() (NULL: none) to ids[*n]; negative ones are marked. Returns 0 or -ENOMEM. */
static int get_list(const char *list, uint32_t **ids, size_t *n, size_t *cap) {
    const char *p = list ? list : "";

    while (*p) {
        uint32_t mark = 0, id = 0;
        p += strcspn(p, "-0123456789");
        if (!*p)
            break;
        if (*p == '-') {
            mark = STACKSET_AGAIN;
            p++;
        }
        for (; *p >= '0' && *p <= '9'; p++)
            id = id * 10 + (uint32_t)(*p - '0');
        if (*n == *cap) {
            uint32_t *more = realloc(*ids, (*cap * 2 + 1024) * sizeof *more);
            if (!more)
                return -ENOMEM;
            *ids = more;
            *cap = *cap * 2 + 1024;
        }
        (*ids)[(*n)++] = id | mark;
    }
    return 0;
}

struct reading {
    uint32_t *frames; /* the frames of all parts, one after the other */
    size_t n, cap;
    size_t *end; /* for each part, where its frames end */
    uint32_t *ids, *stack;
    size_t ids_cap, stack_cap;
};

static int know(struct known *set, const uint64_t seed[2], const uint32_t *ids, size_t n,
                uint32_t id) {
    struct digest d = digest(seed, ids, n);

    d.id = id;
    return known_set(set, &d);
}

static int read_part(struct stackset *s, struct reading *g, sqlite3_stmt *st) {
    size_t from = g->n;
    int err = get_list((const char *)sqlite3_column_text(st, 1), &g->frames, &g->n, &g->cap);

    g->end[++s->nparts] = g->n;
    return err ? err : know(&s->parts, s->seed, g->frames + from, g->n - from, s->nparts);
}

static int read_stack(struct stackset *s, struct reading *g, sqlite3_stmt *st) {
    size_t n = 0, depth = 0;
    int err = get_list((const char *)sqlite3_column_text(st, 1), &g->ids, &n, &g->ids_cap);

    for (size_t i = 0; !err && i < n; i++) {
        uint32_t part = g->ids[i];
        if (part == 0 || part > s->nparts)
            return -EINVAL;
        size_t from = g->end[part - 1], len = g->end[part] - from;
        if (depth + len > g->stack_cap) {
            uint32_t *more = realloc(g->stack, (depth + len) * 2 * sizeof *more);
            if (!more)
                return -ENOMEM;
            g->stack = more;
            g->stack_cap = (depth + len) * 2;
        }
        for (size_t k = 0; k < len; k++)
            g->stack[depth++] = g->frames[from + k] & ~STACKSET_AGAIN;
    }
    s->nstacks = (uint32_t)sqlite3_column_int64(st, 0);
    return err ? err : know(&s->stacks, s->seed, g->stack, depth, s->nstacks);
}

/* Numbers are given in order: the n-th row has number n or, if `gaps` is set, a higher one after rows were deleted (tables_forget_stacks()). */
static int read_rows(struct stackset *s, struct reading *g, sqlite3 *db, const char *sql, int gaps,
                     int (*take)(struct stackset *, struct reading *, sqlite3_stmt *)) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL), err = 0;
    int64_t n = 0;

    if (rc != SQLITE_OK)
        return rc;
    while (!err && sqlite3_step(st) == SQLITE_ROW) {
        int64_t id = sqlite3_column_int64(st, 0);
        err = id == n + 1 || (gaps && id > n && id <= UINT32_MAX) ? take(s, g, st) : -EINVAL;
        n = id;
    }
    rc = sqlite3_finalize(st);
    return err == -ENOMEM ? SQLITE_NOMEM : err ? SQLITE_CORRUPT : rc;
}

int stackset_read(struct stackset *s, sqlite3 *db) {
    struct reading g = {0};
    sqlite3_int64 parts, stacks = 0;
    int rc = sql_number(db, "SELECT max(id) FROM part", &parts);

    if (rc == SQLITE_OK && parts > READ_MOST)
        rc = sql_number(db, "SELECT max(id) FROM stack", &stacks);
    if (rc != SQLITE_OK || parts > READ_MOST) {
        s->nparts = (uint32_t)parts;
        s->nstacks = (uint32_t)stacks;
        return rc;
    }
    g.end = calloc((size_t)parts + 2, sizeof *g.end);
    rc = g.end ? read_rows(s, &g, db, "SELECT id, frames FROM part ORDER BY id", 0, read_part)
               : SQLITE_NOMEM;
    if (rc == SQLITE_OK)
        rc = read_rows(s, &g, db, "SELECT id, parts FROM stack ORDER BY id", 1, read_stack);
    free(g.frames);
    free(g.end);
    free(g.ids);
    free(g.stack);
    return rc;
}
