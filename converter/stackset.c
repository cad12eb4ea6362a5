/* SPDX-License-Identifier: Apache-2.0 */
#include "stackset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "bind.h"

#define READ_MOST (256 << 10) /* parts of a database: 16 MB of frames */

enum { ROW_PART, ROW_STACK, ROW_TOTAL, NKINDS };

static const char into_total[] =
    "INSERT INTO stack_total VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO UPDATE SET samples = samples + ?3, count = count + ?4,"
    " running = running + ?5, cpu_us = cpu_us + ?6, ns = ns + ?7, running_ns = running_ns + ?8";
static const char *const inserts[NKINDS] = {
    "INSERT INTO part(id, frames) VALUES(?1, ?2)",
    "INSERT INTO stack(id, depth, frame, leaf, parts) VALUES(?1, ?2, ?3, ?4, ?5)", into_total};

int stackset_init(struct stackset *s, const struct callsites *cs) {
    memset(s, 0, sizeof *s);
    s->cs = cs;
    pthread_mutex_init(&s->lock, NULL);
    return getrandom(s->seed, sizeof s->seed, 0) == sizeof s->seed ? 0 : -EIO;
}

static void rows_free(struct stackset_rows *r) {
    free(r->rows);
    free(r->text);
    memset(r, 0, sizeof *r);
}

void stackset_free(struct stackset *s) {
    if (!s->cs)
        return;
    free(s->stacks.slots);
    free(s->parts.slots);
    free(s->seen);
    rows_free(&s->waiting);
    rows_free(&s->going);
    pthread_mutex_destroy(&s->lock);
    memset(s, 0, sizeof *s);
}

/* Nobody who does not know the seed can make two lists with the same one. */
static struct digest digest(const uint64_t seed[2], const uint32_t *p, size_t n) {
    uint64_t a = seed[0] ^ n, b = seed[1];

    for (size_t i = 0; i < n; i++) {
        a = (a ^ p[i]) * 0xff51afd7ed558ccdu;
        a ^= a >> 32;
        b = (b + p[i]) * 0x9e3779b97f4a7c15u;
        b ^= b >> 29 ^ a;
    }
    b = (b ^ b >> 31) * 0xc4ceb9fe1a85ec53u;
    return (struct digest){.a = a, .b = (uint32_t)(b >> 32)};
}

static struct digest *find(struct digest *slots, size_t mask, const struct digest *d) {
    size_t i = d->a & mask;

    while (slots[i].id && (slots[i].a != d->a || slots[i].b != d->b))
        i = (i + 1) & mask;
    return &slots[i];
}

/* The slot of d, free or taken. NULL: no memory. */
static struct digest *slot(struct digest_set *set, const struct digest *d) {
    if (set->n >= STACKSET_KNOWN) {
        free(set->slots);
        memset(set, 0, sizeof *set);
    }
    if (set->n * 4 >= set->mask * 3) {
        size_t mask = set->mask ? set->mask * 2 + 1 : 4095;
        struct digest *slots = calloc(mask + 1, sizeof *slots);
        if (!slots)
            return NULL;
        for (size_t i = 0; set->slots && i <= set->mask; i++)
            if (set->slots[i].id)
                *find(slots, mask, &set->slots[i]) = set->slots[i];
        free(set->slots);
        set->slots = slots;
        set->mask = mask;
    }
    return find(set->slots, set->mask, d);
}

/* A row and space for n bytes of text; the lock is held. NULL: no memory. */
static struct stackset_row *row(struct stackset_rows *r, int kind, size_t n) {
    if (r->n == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 256;
        void *p = realloc(r->rows, cap * sizeof *r->rows);
        if (!p)
            return NULL;
        r->rows = p;
        r->cap = cap;
    }
    if (r->text_cap - r->ntext < n) {
        size_t cap = r->text_cap * 2 + n + 4096;
        char *p = realloc(r->text, cap);
        if (!p)
            return NULL;
        r->text = p;
        r->text_cap = cap;
    }
    struct stackset_row *at = &r->rows[r->n++];
    memset(at, 0, sizeof *at);
    at->kind = kind;
    at->text = r->ntext;
    return at;
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

/* [1,-2,3]: ids as JSON, marked ones negative. */
static void put_list(struct stackset_rows *r, struct stackset_row *at, const uint32_t *ids,
                     size_t n) {
    char *begin = r->text + r->ntext, *p = begin;

    for (size_t i = 0; i < n; i++) {
        int64_t id = ids[i] & ~STACKSET_AGAIN;
        *p++ = i ? ',' : '[';
        p = put_number(p, ids[i] & STACKSET_AGAIN ? -id : id);
    }
    *p++ = ']';
    at->len = (uint32_t)(p - begin);
    r->ntext += at->len;
}

static uint32_t part(struct stackset *s, const uint32_t *frames, size_t n) {
    struct digest d = digest(s->seed, frames, n), *at = slot(&s->parts, &d);

    if (!at || at->id)
        return at ? at->id : 0;
    struct stackset_row *r = row(&s->waiting, ROW_PART, n * 12 + 2);
    if (!r)
        return 0;
    *at = d;
    at->id = ++s->nparts;
    s->parts.n++;
    r->v[0] = at->id;
    put_list(&s->waiting, r, frames, n);
    return at->id;
}

/* Marks the frames whose function is further inside again. 0 or -ENOMEM. */
static int mark(struct stackset *s, uint32_t *frames, size_t n, uint32_t *leaf) {
    if (s->seen_cap <= s->cs->functions.n) {
        size_t cap = (size_t)s->cs->functions.n * 2 + 1024;
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
        uint32_t function = callsites_frame_of(s->cs, frames[i]).function;
        if (*leaf == n && callsites_type_of(s->cs, function) == CALLSITE_PYTHON)
            *leaf = (uint32_t)i;
        if (s->seen[function] == s->stamp)
            frames[i] |= STACKSET_AGAIN;
        s->seen[function] = s->stamp;
    }
    return 0;
}

/* A stack not seen before. The lock is held. */
static uint32_t put_new(struct stackset *s, const uint32_t *frames, size_t n, uint32_t leaf) {
    uint32_t few[256], *parts = few;
    size_t last = (n - 1) % STACKSET_PART + 1, nparts = 0; /* the innermost part may be short */

    if (n / STACKSET_PART + 1 > sizeof few / sizeof *few &&
        !(parts = malloc((n / STACKSET_PART + 1) * sizeof *parts)))
        return 0;
    uint32_t id = 1;
    for (size_t i = 0; i < n && id; i += nparts == 1 ? last : STACKSET_PART)
        id = parts[nparts++] = part(s, frames + i, i ? STACKSET_PART : last);
    struct stackset_row *r = id ? row(&s->waiting, ROW_STACK, nparts * 12 + 2) : NULL;
    if (r) {
        id = ++s->nstacks;
        r->v[0] = id;
        r->v[1] = (int64_t)n;
        r->v[2] = *frames;
        r->v[3] = leaf;
        put_list(&s->waiting, r, parts, nparts);
    }
    if (parts != few)
        free(parts);
    return r ? id : 0;
}

uint32_t stackset_put(struct stackset *s, uint32_t *frames, size_t n, uint32_t *leaf) {
    struct digest d = digest(s->seed, frames, n), *at = slot(&s->stacks, &d);

    if (!at || mark(s, frames, n, leaf) != 0)
        return 0;
    if (!at->id) {
        pthread_mutex_lock(&s->lock);
        d.id = put_new(s, frames, n, *leaf);
        pthread_mutex_unlock(&s->lock);
        *at = d;
        s->stacks.n += d.id != 0;
    }
    return at->id;
}

int stackset_total(struct stackset *s, const int64_t v[STACKSET_TOTAL]) {
    pthread_mutex_lock(&s->lock);
    struct stackset_row *r = row(&s->waiting, ROW_TOTAL, 0);
    if (r)
        memcpy(r->v, v, sizeof r->v);
    pthread_mutex_unlock(&s->lock);
    return r ? 0 : -ENOMEM;
}

static int insert(sqlite3_stmt *st, const struct stackset_rows *all, const struct stackset_row *r) {
    const char *text = all->text + r->text;

    switch (r->kind) {
    case ROW_PART:
        sqlite3_bind_int64(st, 1, r->v[0]);
        sqlite3_bind_text(st, 2, text, (int)r->len, SQLITE_STATIC);
        break;
    case ROW_STACK:
        for (int i = 0; i < 4; i++)
            sqlite3_bind_int64(st, i + 1, r->v[i]);
        if (r->v[3] == r->v[1]) /* no Python in it */
            sqlite3_bind_null(st, 4);
        sqlite3_bind_text(st, 5, text, (int)r->len, SQLITE_STATIC);
        break;
    default:
        for (int i = 0; i < STACKSET_TOTAL; i++)
            sqlite3_bind_int64(st, i + 1, r->v[i]);
    }
    int rc = sqlite3_step(st);
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int stackset_drain(struct stackset *s, sqlite3 *db) {
    sqlite3_stmt *st[NKINDS] = {NULL};
    struct stackset_rows *rows = &s->going, empty = *rows;
    int rc = SQLITE_OK;

    pthread_mutex_lock(&s->lock);
    *rows = s->waiting;
    s->waiting = empty;
    pthread_mutex_unlock(&s->lock);
    for (int k = 0; db && rows->n && k < NKINDS && rc == SQLITE_OK; k++)
        rc = sqlite3_prepare_v2(db, inserts[k], -1, &st[k], NULL);
    for (size_t i = 0; db && rc == SQLITE_OK && i < rows->n; i++)
        rc = insert(st[rows->rows[i].kind], rows, &rows->rows[i]);
    for (int k = 0; k < NKINDS; k++)
        sqlite3_finalize(st[k]);
    rows->n = rows->ntext = 0;
    return rc;
}

/* The numbers of a list that put_list() wrote (NULL: none), at ids[*n]; -: marked. 0 or -ENOMEM. */
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
    uint32_t *frames; /* of all parts, one after the other */
    size_t n, cap;
    size_t *end; /* by part, where its frames end */
    uint32_t *ids, *stack;
    size_t ids_cap, stack_cap;
};

static int know(struct digest_set *set, const uint64_t seed[2], const uint32_t *ids, size_t n,
                uint32_t id) {
    struct digest d = digest(seed, ids, n), *at = slot(set, &d);

    if (!at)
        return -ENOMEM;
    set->n += !at->id;
    d.id = id;
    *at = d;
    return 0;
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
    s->nstacks++;
    return err ? err : know(&s->stacks, s->seed, g->stack, depth, s->nstacks);
}

/* Numbers are given in order: the n-th row is number n. */
static int read_rows(struct stackset *s, struct reading *g, sqlite3 *db, const char *sql,
                     int (*take)(struct stackset *, struct reading *, sqlite3_stmt *)) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL), err = 0;
    int64_t n = 0;

    if (rc != SQLITE_OK)
        return rc;
    while (!err && sqlite3_step(st) == SQLITE_ROW)
        err = sqlite3_column_int64(st, 0) == ++n ? take(s, g, st) : -EINVAL;
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
    rc = g.end ? read_rows(s, &g, db, "SELECT id, frames FROM part ORDER BY id", read_part)
               : SQLITE_NOMEM;
    if (rc == SQLITE_OK)
        rc = read_rows(s, &g, db, "SELECT id, parts FROM stack ORDER BY id", read_stack);
    free(g.frames);
    free(g.end);
    free(g.ids);
    free(g.stack);
    return rc;
}
