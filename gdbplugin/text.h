/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - what the inspect library returns: text for people, JSON, and the lines that say why something could not be done,
 * each with what to do about it.
 *
 *     struct text t = {0};
 *     text_put(&t, "thread %d \"%q\"\n", tid, name);
 *     return text_take(&t);       // malloc()ed; NULL when memory ran out on the way
 *
 * Errors are sticky. Not for signal handlers; no locking.
 */
#ifndef PROBING_INSPECT_TEXT_H
#define PROBING_INSPECT_TEXT_H

#include <cjson/cJSON.h>
#include <stdio.h>
#include <sys/types.h>

#include "writer/sys.h"

/* ---- a growing string ---- */

struct text {
    FILE *f; /* NULL: nothing has been added yet */
    char *s;
    size_t n;
};

void text_add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* With directives of its own: %s as it is, %q as text_plain(), %d an int. No compiler checks the arguments. */
void text_put(struct text *t, const char *fmt, ...);
/* s for a terminal: what comes from a target must not steer it, so what visible.h does not show becomes '?'. */
void text_plain(struct text *t, const char *s);
/* The string, owned by the caller now (free()); t is empty again. */
char *text_take(struct text *t);

/* ---- JSON ---- */

/* A text of the target's in an object: json_put() makes it harmless. NULL gives null. */
void json_text(cJSON *object, const char *name, const char *s);
/* A number, null when it is negative. */
void json_known(cJSON *object, const char *name, int n);
/* An address in hex. */
cJSON *json_address(uint64_t addr);
/* Adds it on one line, as visible_json() has it; the JSON is gone then. */
void json_put(struct text *t, cJSON *json);

/* ---- why: malloc()ed lines without a newline, or NULL ---- */

struct stop;
char *say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same into *why; returns rc. */
#define fail(why, rc, ...)                                                                         \
    ({                                                                                             \
        int rc_ = (rc);                                                                            \
        *(why) = say(__VA_ARGS__);                                                                 \
        rc_;                                                                                       \
    })
/* Why this process may not be read or traced. */
char *say_not_permitted(pid_t pid);
/* The line about the process that traces it; NULL: none does. */
char *say_traced(pid_t pid);
/* Why stop_seize() or stop_borrow() failed. */
char *say_stop(pid_t pid, int rc, const struct stop *s);

#endif
