/* SPDX-License-Identifier: Apache-2.0 */
#include "samples.h"

#include <errno.h>
#include <string.h>

int export_samples(struct export *x, enum export_order order, sqlite3_stmt **out) {
    static const char *const orders[] = {"", " ORDER BY s.ts, s.id",
                                         " ORDER BY e.process, 3, s.ts, s.id"};
    /* The time of a tick is as in the view samples. */
    char *sql = sqlite3_mprintf(
        "SELECT s.id, s.ts, " EXPORT_THREAD(
            "t.first_id + s.thread") ", s.stack, s.count, s.count * coalesce(CASE WHEN t.periods < 2 THEN t.period_ns ELSE ("
                                     "SELECT p.ns FROM period p WHERE p.trace = t.id AND p.since <= s.ts ORDER BY p.since DESC LIMIT 1) END, 0),"
                                     " s.cpu_us, s.flags FROM temp.export_trace e CROSS JOIN trace_file t ON t.id = e.id"
                                     " CROSS JOIN sample s ON s.id BETWEEN t.first_id AND t.last_id"
                                     " WHERE s.ts BETWEEN :from AND :to AND s.count > 0 AND (:cpu = 0 OR s.flags & 1)%s",
        orders[order]);
    int rc = sql ? export_prepare(x, sql, out) : -ENOMEM;

    sqlite3_free(sql);
    return rc;
}

int export_sample(struct export *x, sqlite3_stmt *st, struct export_sample *out) {
    int rc = export_step(x, st);

    if (rc > 0)
        *out = (struct export_sample){
            .id = sqlite3_column_int64(st, 0),
            .ts = sqlite3_column_int64(st, 1),
            .thread = sqlite3_column_int64(st, 2),
            .stack = sqlite3_column_int64(st, 3),
            .count = sqlite3_column_int64(st, 4),
            .ns = sqlite3_column_int64(st, 5),
            .cpu_us = sqlite3_column_int64(st, 6),
            .flags = sqlite3_column_int(st, 7),
        };
    return rc;
}

int export_sums(struct export *x, struct export_sums *out) {
    struct export_sample s;
    sqlite3_stmt *st = NULL;
    int rc;

    memset(out, 0, sizeof *out);
    rc = export_samples(x, EXPORT_AS_RECORDED, &st);
    while (rc == 0 && (rc = export_sample(x, st, &s)) > 0) {
        rc = sums_add(&out->count, s.thread, s.stack, (uint64_t)s.count) != SQLITE_OK ||
                     sums_add(&out->ns, s.thread, s.stack, (uint64_t)s.ns) != SQLITE_OK ||
                     sums_add(&out->cpu, s.thread, s.stack, (uint64_t)s.cpu_us) != SQLITE_OK
                 ? -ENOMEM
                 : 0;
    }
    sqlite3_finalize(st);
    sums_list(&out->count); /* all three have the same pairs in the same order */
    sums_list(&out->ns);
    sums_list(&out->cpu);
    out->n = out->count.n;
    return rc;
}

struct export_sum export_sum(const struct export_sums *s, size_t i) {
    return (struct export_sum){
        .thread = s->count.sum[i].thread,
        .stack = s->count.sum[i].stack,
        .count = s->count.sum[i].weight,
        .ns = s->ns.sum[i].weight,
        .cpu_us = s->cpu.sum[i].weight,
    };
}

void export_sums_free(struct export_sums *s) {
    sums_free(&s->count);
    sums_free(&s->ns);
    sums_free(&s->cpu);
}
