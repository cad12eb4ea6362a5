/* SPDX-License-Identifier: Apache-2.0 */
#include "arrow_notes.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES_MAX (1u << 20) /* bytes; when 100,000 files have messages, most are only counted */

struct arrow_notes {
    atomic_uint refs;
    pthread_mutex_t lock;
    char *lines;
    size_t n, cap;
    unsigned long more; /* number of lines that found no space */
    char failure[768];
};

struct arrow_notes *arrow_notes_new(void) {
    struct arrow_notes *n = calloc(1, sizeof *n);

    if (n) {
        atomic_init(&n->refs, 1);
        pthread_mutex_init(&n->lock, NULL);
    }
    return n;
}

struct arrow_notes *arrow_notes_ref(struct arrow_notes *n) {
    atomic_fetch_add(&n->refs, 1);
    return n;
}

void arrow_notes_free(struct arrow_notes *n) {
    if (!n || atomic_fetch_sub(&n->refs, 1) != 1)
        return;
    pthread_mutex_destroy(&n->lock);
    free(n->lines);
    free(n);
}

int arrow_note(struct arrow_notes *n, int err, const char *file, const char *fmt, ...) {
    char line[768];
    va_list ap;

    int k = snprintf(line, sizeof line / 2, "%s", file);
    k = k < (int)sizeof line / 2 ? k : (int)sizeof line / 2 - 1;
    k += snprintf(line + k, 3, ": ");
    va_start(ap, fmt);
    vsnprintf(line + k, sizeof line - (size_t)k - 1, fmt, ap);
    va_end(ap);
    for (char *p = line; *p; p++) /* a file name may contain a line break */
        if (*p == '\n' || *p == '\r')
            *p = '?';
    size_t len = strlen(line);
    line[len++] = '\n';
    pthread_mutex_lock(&n->lock);
    if (n->n + len > n->cap && n->n + len < LINES_MAX) {
        char *p = realloc(n->lines, n->cap * 2 + len + 1024);
        if (p) {
            n->lines = p;
            n->cap = n->cap * 2 + len + 1024;
        }
    }
    if (n->n + len <= n->cap) {
        memcpy(n->lines + n->n, line, len);
        n->n += len;
    } else {
        n->more++;
    }
    pthread_mutex_unlock(&n->lock);
    return err;
}

int arrow_fail(struct arrow_notes *n, int err, const char *fmt, ...) {
    va_list ap;

    pthread_mutex_lock(&n->lock);
    va_start(ap, fmt);
    vsnprintf(n->failure, sizeof n->failure, fmt, ap);
    va_end(ap);
    pthread_mutex_unlock(&n->lock);
    return err;
}

const char *arrow_failure(const struct arrow_notes *n) {
    return n->failure;
}

size_t arrow_notes_text(struct arrow_notes *notes, char *buf, size_t n) {
    char more[64] = "";

    pthread_mutex_lock(&notes->lock);
    if (notes->more)
        snprintf(more, sizeof more, "(and %lu lines more)\n", notes->more);
    size_t have = notes->n + strlen(more);
    if (n) {
        size_t k = notes->n < n - 1 ? notes->n : n - 1;
        if (k)
            memcpy(buf, notes->lines, k);
        snprintf(buf + k, n - k, "%s", more);
    }
    pthread_mutex_unlock(&notes->lock);
    return have;
}
