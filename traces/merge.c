/* SPDX-License-Identifier: Apache-2.0 */
#include "merge.h"

#include <string.h>

enum merge_owner merge_owner(const char *path) {
    const char *base = path ? strrchr(path, '/') : NULL;

    base = base ? base + 1 : path ? path : "";
    if (strncmp(base, "libprobing-", 11) == 0)
        return MERGE_AGENT;
    /* libc.so.6, libc-2.31.so, libpthread likewise, ld-linux-x86-64.so.2 */
    if (strncmp(base, "libc.so", 7) == 0 || strncmp(base, "libc-2", 6) == 0 ||
        strncmp(base, "libpthread", 10) == 0 || strncmp(base, "ld-", 3) == 0 ||
        strcmp(base, "[vdso]") == 0)
        return MERGE_LIBC;
    if (strncmp(base, "_greenlet.", 10) == 0 || strncmp(base, "greenlet.", 9) == 0)
        return MERGE_SWITCH;
    return MERGE_PROGRAM;
}

/* Index of the first frame of the program itself when the innermost frames are the agent's; else 0. */
static size_t skip_agent(const struct merge_native *nat, size_t nn) {
    size_t i = 0;

    while (i < nn && nat[i].owner == MERGE_LIBC)
        i++;
    if (i == nn || nat[i].owner != MERGE_AGENT)
        return 0;
    while (i < nn && nat[i].owner == MERGE_AGENT)
        i++;
    return i;
}

/* Copies Python frames from *i up to and including the next entry frame. */
static size_t put_group(const struct merge_python *py, size_t np, size_t *i, uint32_t *out) {
    size_t n = 0;

    while (*i < np) {
        out[n++] = py[*i].frame;
        if (py[(*i)++].entry)
            break;
    }
    return n;
}

size_t merge_stacks(const struct merge_python *py, size_t np, const struct merge_native *nat,
                    size_t nn, int cut, uint32_t *out) {
    size_t groups = 0, evals = 0, n = 0, p = 0;

    for (size_t i = 0; i < np; i++)
        groups += py[i].entry || i + 1 == np;
    for (size_t i = 0; i < nn; i++) {
        if (nat[i].owner == MERGE_SWITCH && groups && evals >= groups)
            break;
        evals += nat[i].eval != 0;
    }

    size_t both = groups < evals ? groups : evals;
    size_t first_eval = cut ? 0 : evals - both; /* evals inside this one have no group */
    size_t before = cut ? 0 : groups - both;    /* groups inside the first matched eval */
    size_t seen = 0;
    for (size_t i = skip_agent(nat, nn); i < nn; i++) {
        if (nat[i].owner == MERGE_AGENT)
            continue;
        if (!nat[i].eval) {
            out[n++] = nat[i].frame;
            continue;
        }
        size_t k = seen++;
        if (k < first_eval || k >= first_eval + both) {
            out[n++] = nat[i].frame;
            continue;
        }
        for (; before > 0; before--)
            n += put_group(py, np, &p, out + n);
        n += put_group(py, np, &p, out + n);
    }
    while (p < np) /* outermost ones, or all of them when no eval frame was found */
        n += put_group(py, np, &p, out + n);
    return n;
}
