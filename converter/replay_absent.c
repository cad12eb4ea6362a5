/* SPDX-License-Identifier: Apache-2.0 */
#include "replay_absent.h"

#include <errno.h>
#include <stdlib.h>

/* The ranks of the attempt's groups that have no trace. */
static const char absent_sql[] =
    "SELECT DISTINCT coalesce(g.name, 'group ' || g.pg), r.rank FROM process_group g JOIN trace_file f ON f.id = g.trace "
    "JOIN group_rank r ON r.list = g.list WHERE f.run IS ?1 AND f.attempt IS ?2 AND g.size > 1 "
    "AND r.rank NOT IN (SELECT rank FROM trace_file WHERE run IS ?1 AND attempt IS ?2 AND rank IS NOT NULL) ORDER BY 2";

static int grow(void *array, size_t *cap, size_t n, size_t size) {
    void **p = array, *more;

    if (n < *cap)
        return 0;
    size_t to = *cap ? 2 * *cap : 64;
    if (!(more = realloc(*p, to * size)))
        return -ENOMEM;
    *p = more;
    *cap = to;
    return 0;
}

static int by_group(const void *a, const void *b) {
    const struct absent_member *x = a, *y = b;

    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

int absent_load(struct absent *a, struct replay_job *j, sqlite3 *db) {
    sqlite3_stmt *st;
    int last = -1, rc = sqlite3_prepare_v2(db, absent_sql, -1, &st, NULL);

    if (rc == SQLITE_OK) {
        sqlite3_bind_text(st, 1, j->run, -1, SQLITE_STATIC);
        sqlite3_bind_int64(st, 2, j->attempt);
    }
    while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (grow(&a->member, &a->members_cap, a->nmembers, sizeof *a->member) != 0) {
            rc = SQLITE_NOMEM;
            break;
        }
        int rank = sqlite3_column_int(st, 1);
        a->member[a->nmembers++] =
            (struct absent_member){replay_hash(1, sqlite3_column_text(st, 0)), rank};
        j->nabsent += rank != last;
        last = rank;
        rc = SQLITE_OK;
    }
    sqlite3_finalize(st);
    if (a->nmembers)
        qsort(a->member, a->nmembers, sizeof *a->member, by_group);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

void absent_met(struct absent *a, size_t call, uint64_t group, uint64_t sort, int missing,
                int is_all) {
    if (grow(&a->met, &a->met_cap, a->nmet, sizeof *a->met) != 0)
        a->err = -ENOMEM;
    else
        a->met[a->nmet++] = (struct absent_met){group, sort, call, missing, is_all};
}

/* How long a collective of which all calls are here took since the last rank came. */
struct took {
    uint64_t sort;
    double seconds;
};

static int by_sort(const void *a, const void *b) {
    const struct took *x = a, *y = b;

    if (x->sort != y->sort)
        return x->sort < y->sort ? -1 : 1;
    return x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}

/* Finds what a collective of that sort takes, and what nearly none exceeds. Returns 0 if that is not known. */
static int usual(const struct took *t, size_t n, uint64_t sort, double *median, double *most) {
    size_t lo = 0, end;

    for (size_t hi = n; lo < hi;) {
        size_t mid = lo + (hi - lo) / 2;
        *(t[mid].sort < sort ? &lo : &hi) = t[mid].sort < sort ? mid + 1 : mid;
    }
    for (end = lo; end < n && t[end].sort == sort; end++)
        ;
    if (end == lo)
        return 0;
    *median = t[lo + (end - lo) / 2].seconds;
    *most = 2 * t[lo + (end - lo) * 9 / 10].seconds;
    return 1;
}

/* Returns the range of the group's members that have no trace, if messages of each of them are known and they are all who are missing; else an empty one. */
static size_t members_of(const struct absent *a, const struct mirror *m, const struct absent_met *t,
                         size_t *end) {
    size_t lo = 0;

    for (size_t hi = a->nmembers; lo < hi;) {
        size_t mid = lo + (hi - lo) / 2;
        int before = a->member[mid].group < t->group;
        *(before ? &lo : &hi) = before ? mid + 1 : mid;
    }
    for (*end = lo; *end < a->nmembers && a->member[*end].group == t->group; ++*end)
        if (!mirror_has(m, a->member[*end].rank))
            return *end = lo;
    if (*end - lo != (size_t)t->missing)
        *end = lo;
    return lo;
}

int absent_arrive(struct absent *a, struct replay_job *j, struct mirror *m) {
    struct took *took = malloc(sizeof *took * (a->nmet + 1));
    double *late = malloc(sizeof *late * ((size_t)j->nmeetings + 1));
    size_t n = 0;

    if (!took || !late || a->err) {
        free(took);
        free(late);
        return m->err = -ENOMEM;
    }
    for (int i = 0; i < j->nmeetings; i++)
        late[i] = -1;
    for (size_t i = 0; i < a->nmet; i++)
        if (!a->met[i].missing)
            took[n++] = (struct took){a->met[i].sort, j->call[a->met[i].call].transfer};
    qsort(took, n, sizeof *took, by_sort);
    for (size_t i = 0, k, end; i < a->nmet; i++) {
        const struct absent_met *t = &a->met[i];
        const struct replay_call *c = &j->call[t->call];
        double median, most;
        if (t->missing <= 0)
            continue;
        k = members_of(a, m, t, &end);
        if (k == end || !usual(took, n, t->sort, &median, &most)) {
            if (t->is_all)
                mirror_join(m, j, c->on, t->call);
            continue;
        }
        int is_late = c->transfer > most;
        for (; k < end; k++)
            mirror_arrive(m, j, a->member[k].rank, t->call, median, is_late);
        late[c->on] = is_late ? median : -1;
    }
    for (size_t i = 0; i < j->ncalls; i++)
        if (j->call[i].on >= 0 && late[j->call[i].on] >= 0)
            j->call[i].transfer = late[j->call[i].on];
    free(took);
    free(late);
    return 0;
}

void absent_free(struct absent *a) {
    free(a->member);
    free(a->met);
    *a = (struct absent){0};
}
