/* SPDX-License-Identifier: Apache-2.0 */
#include "merge.h"

#include <string.h>

int merge_is_eval(const char *symbol) {
    static const char name[] = "_PyEval_EvalFrameDefault";
    size_t n = sizeof name - 1;

    /* the compiler splits it: .cold, .lto_priv.0, .constprop.1 */
    return strncmp(symbol, name, n) == 0 && (symbol[n] == 0 || symbol[n] == '.');
}

static size_t count_evals(const unsigned char *eval, size_t n) {
    size_t k = 0;

    for (size_t i = 0; i < n; i++)
        k += eval[i] != 0;
    return k;
}

/* A group is closed by an entry frame, or by the end of the list. */
static size_t count_groups(const unsigned char *entry, size_t n) {
    size_t k = 0;

    for (size_t i = 0; i < n; i++)
        k += entry[i] || i + 1 == n;
    return k;
}

static size_t put_group(const unsigned char *entry, size_t npython, size_t *at,
                        struct merge_item *out) {
    size_t n = 0;

    while (*at < npython) {
        size_t i = (*at)++;
        out[n++] = (struct merge_item){1, i};
        if (entry[i])
            break;
    }
    return n;
}

size_t inspect_merge(const unsigned char *eval, size_t nnative, int native_complete,
                     const unsigned char *entry, size_t npython, struct merge_item *out) {
    size_t evals = count_evals(eval, nnative), groups = count_groups(entry, npython);
    size_t skip = 0, n = 0, at = 0;

    if (native_complete) {
        /* More groups than eval frames: the innermost ones have lost theirs; they go on top. */
        for (; groups > evals; groups--)
            n += put_group(entry, npython, &at, out + n);
        /* More eval frames: the innermost run no Python frame (yet, or any more). */
        skip = evals - groups;
    }
    for (size_t i = 0; i < nnative; i++) {
        if (!eval[i])
            out[n++] = (struct merge_item){0, i};
        else if (skip > 0 || at == npython) {
            out[n++] = (struct merge_item){0, i};
            skip -= skip > 0;
        } else
            n += put_group(entry, npython, &at, out + n);
    }
    while (at < npython)
        n += put_group(entry, npython, &at, out + n);
    return n;
}
