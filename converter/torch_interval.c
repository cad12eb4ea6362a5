/* SPDX-License-Identifier: Apache-2.0 */
#include "torch_interval.h"

#include <errno.h>

#include "torch_rows.h"

void torch_interval_begin(struct torch_interval *v, const struct torch_open *tc, unsigned kind,
                          const struct torch_item *e) {
    *v = (struct torch_interval){.ts = e->ts,
                                 .name = e->arg < TORCH_ROWS_NAMES ? e->arg : TORCH_ROWS_NAMES - 1};
    if (kind == TORCH_SPAN) {
        v->stage = e->arg == TORCH_SPAN_OPTIMIZER ? STAGE_OPTIMIZER
                   : e->arg == TORCH_SPAN_DATA    ? STAGE_DATA
                                                  : STAGE_PASS;
    } else if (kind == TORCH_BACK || kind == TORCH_BACK_AT) {
        v->stage = STAGE_BACKWARD;
        v->call = kind == TORCH_BACK ? tc->next_call - e->a : e->b;
        v->tid = kind == TORCH_BACK ? 0 : e->a;
    } else {
        v->stage = STAGE_FORWARD;
        v->flags = kind == TORCH_AGAIN ? TORCH_CALL_AGAIN : 0;
    }
}

int torch_interval_part(const struct torch_open *tc, enum torch_stage stage) {
    static const int part[] = {TORCH_FORWARD, -1, TORCH_BACKWARD, TORCH_OPTIMIZER, TORCH_DATA};
    for (uint32_t i = tc->n; i-- > 0;) {
        int around = tc->open[i].part;
        if (around == TORCH_BACKWARD && stage == STAGE_OPTIMIZER) /* an optimizer in a hook */
            break;
        if (around == part[stage] || around == TORCH_BACKWARD || around == TORCH_DATA)
            return -1;
        if (around == TORCH_FORWARD && stage == STAGE_FORWARD)
            return -1;
    }
    return part[stage];
}

int torch_interval_is_engines(const struct torch_open *tc, const struct torch_interval *v) {
    uint32_t i = tc->n;

    while (i > 0 && tc->open[i - 1].stage != STAGE_PASS)
        i--;
    return v->stage == STAGE_OPTIMIZER && !i && tc->n && tc->open[0].stage == STAGE_BACKWARD;
}

int torch_interval_sum(struct torch_state *t, struct torch_open *tc, const struct torch_interval *v,
                       uint64_t end) {
    int64_t ns = (int64_t)(end - v->ts);

    if (v->stage > STAGE_BACKWARD)
        return 0;
    struct torch_sum *s = torch_state_sum(t, v->name, v->stage);
    if (!s)
        return -ENOMEM;
    s->calls++;
    if (!end)
        return 0;
    s->timed++;
    s->ns += ns;
    s->self_ns += ns - v->inner;
    s->longest = ns > s->longest ? ns : s->longest;
    for (uint32_t i = tc->n; v->parent && i-- > 0;)
        if (tc->open[i].id == v->parent) {
            tc->open[i].inner += ns;
            break;
        }
    return 0;
}
