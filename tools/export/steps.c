/* SPDX-License-Identifier: Apache-2.0 */
#include "steps.h"

#include <errno.h>
#include <stdlib.h>

#define EVALUATION 3 /* torch_step.source */

int export_steps_of(struct export *x, struct export_steps *s, const struct export_process *p) {
    sqlite3_stmt *st = NULL;
    int rc = 0;

    if (s->of == p)
        return 0;
    s->of = p;
    s->n = s->last = 0;
    /* A step whose end was not recorded lasts until the end of the recording. */
    rc = export_prepare(
        x,
        "SELECT s.ts, s.ts + coalesce(s.duration, (1 << 62) - s.ts), s.number FROM temp.export_trace e"
        " CROSS JOIN torch_step s ON s.id BETWEEN e.id << 40 AND e.id << 40 | 0xffffffffff"
        " WHERE e.process = ?1 AND s.source <> ?2 ORDER BY s.ts",
        &st);
    sqlite3_bind_int64(st, 1, p->id);
    sqlite3_bind_int(st, 2, EVALUATION);
    while (rc == 0 && (rc = export_step(x, st)) > 0) {
        rc = 0;
        if (s->n == s->cap) {
            size_t cap = s->cap ? s->cap * 2 : 1024;
            void *more = realloc(s->step, cap * sizeof *s->step);
            if (!more) {
                rc = -ENOMEM;
                break;
            }
            s->step = more;
            s->cap = cap;
        }
        s->step[s->n++] = (struct export_step_time){
            sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1), sqlite3_column_int64(st, 2)};
    }
    sqlite3_finalize(st);
    return rc;
}

int64_t export_step_at(struct export_steps *s, int64_t ts) {
    const struct export_step_time *t = s->step ? &s->step[s->last] : NULL;
    size_t lo = 0, hi = s->n;

    if (s->last < s->n && t->from <= ts && ts < t->to)
        return t->number;
    while (lo < hi) { /* find the last step that began until then */
        size_t mid = lo + (hi - lo) / 2;
        if (s->step[mid].from <= ts)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0 || ts >= s->step[lo - 1].to)
        return -1;
    s->last = lo - 1;
    return s->step[lo - 1].number;
}

void export_steps_free(struct export_steps *s) {
    free(s->step);
}
