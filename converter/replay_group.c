/* SPDX-License-Identifier: Apache-2.0 */
#include "replay_group.h"

#include <errno.h>
#include <stdlib.h>

#define PARTS 10
#define SURE  9 /* of so many parts the late ranks are the later ones */

struct excess {
    double all, part[PARTS]; /* seconds that the rank works longer than its peers on average */
    int rank;
};

static int most_first(const void *a, const void *b) {
    double x = ((const struct excess *)a)->all, y = ((const struct excess *)b)->all;

    return x > y ? -1 : x < y;
}

struct class {
    double sum;
    int n;
};

static void add_up(const struct replay_job *j, struct class *class, struct excess *e) {
    double first = 0, last = 0;

    for (size_t i = 0; i < j->ncalls; i++) {
        const struct replay_call *c = &j->call[i];
        first = i == 0 || c->enter < first ? c->enter : first;
        last = i == 0 || c->enter > last ? c->enter : last;
        if (c->work >= 0) {
            class[c->peers].sum += c->work;
            class[c->peers].n++;
        }
    }
    for (int r = 0; r < j->nranks; r++)
        e[r] = (struct excess){.rank = r};
    for (size_t i = 0; i < j->ncalls; i++) {
        const struct replay_call *c = &j->call[i];
        if (c->work < 0)
            continue;
        int part = last > first ? (int)((c->enter - first) / (last - first) * PARTS) : 0;
        double more = c->work - class[c->peers].sum / class[c->peers].n;
        e[c->rank].all += more;
        e[c->rank].part[part < PARTS ? part : PARTS - 1] += more;
    }
}

/* Returns in how many parts each of the first n works longer than any other. */
static int parts_led(const struct excess *e, int n, int nranks) {
    int led = 0;

    for (int p = 0; p < PARTS; p++) {
        double least = e[0].part[p], most = e[n].part[p];
        for (int i = 0; i < n; i++)
            least = e[i].part[p] < least ? e[i].part[p] : least;
        for (int i = n; i < nranks; i++)
            most = e[i].part[p] > most ? e[i].part[p] : most;
        led += least > most;
    }
    return led;
}

int replay_group_find(const struct replay_job *j, unsigned char *is_late) {
    struct excess *e = malloc(sizeof *e * (size_t)(j->nranks + 1));
    struct class *class = calloc((size_t)j->npeers + 1, sizeof *class);
    int n = 0;

    if (!e || !class) {
        free(e);
        free(class);
        return -ENOMEM;
    }
    add_up(j, class, e);
    free(class);
    qsort(e, (size_t)j->nranks, sizeof *e, most_first);
    for (int k = 1; k <= j->nranks / 2; k++) {
        if (n == 0 || e[k - 1].all - e[k].all > e[n - 1].all - e[n].all)
            n = k;
    }
    if (n < 2 || parts_led(e, n, j->nranks) < SURE)
        n = 0;
    for (int i = 0; i < j->nranks; i++)
        is_late[e[i].rank] = i < n;
    free(e);
    return n;
}
