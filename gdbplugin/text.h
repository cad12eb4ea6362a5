/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - a growing string: what the inspect library returns is text for people, or JSON.
 *
 *     struct text t = {0};
 *     text_add(&t, "{\"pid\":%d,\"name\":", pid);
 *     text_json(&t, name);
 *     text_add(&t, "}");
 *     return text_take(&t);       // malloc()ed; NULL when memory ran out on the way
 *
 * Errors are sticky: after a failed allocation nothing is added, and text_take() returns NULL.
 * Not for signal handlers; no locking.
 */
#ifndef PROBING_INSPECT_TEXT_H
#define PROBING_INSPECT_TEXT_H

#include <stddef.h>

struct text {
    char *s;
    size_t n, cap;
    int failed;
};

void text_add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* s as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD. NULL gives null. */
void text_json(struct text *t, const char *s);
/* s for a terminal: what comes from a target must not steer it, so control characters become '?'. */
void text_plain(struct text *t, const char *s);
/* The string, owned by the caller now (free()); t is empty again. */
char *text_take(struct text *t);
void text_free(struct text *t);

#endif
