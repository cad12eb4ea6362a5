/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/backoff.h"

int backoff_due(struct backoff *r, uint64_t period, const struct tick *tick, struct tick *mine) {
    /* How many of the tick's `span` and `missed` no sample stands for yet. */
    uint64_t more = tick->last > r->covered ? (tick->last - r->covered) / period : 0;
    if (r->ticks ? tick->last < r->due : more == 0)
        return 0;
    *mine = *tick;
    if (mine->span > more)
        mine->span = more;
    if (mine->missed > more - mine->span)
        mine->missed = more - mine->span;
    if (r->ticks) /* this tick's, and those at which it was left out */
        mine->span = r->ticks + more - mine->missed;
    r->ticks = 0;
    if (tick->last > r->covered)
        r->covered = tick->last;
    mine->last = r->covered;
    return 1;
}

void backoff_give(struct backoff *r, uint64_t period, uint64_t ticks, uint64_t random) {
    r->asleep += ticks;
    uint64_t n = backoff_ticks(r->asleep, period);
    if (n < 2)
        return;
    r->ticks = n;
    r->due = r->covered + (1 + random % n) * period;
    r->covered += n * period;
}
