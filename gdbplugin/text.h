/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - what the inspect library returns: text for people, JSON, and lines that say why something could not be done and what to do about it.
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
/* Has directives of its own: %s adds text as it is, %q as text_plain() does, %w as a word for a shell, %d adds an int. No compiler checks them. */
void text_put(struct text *t, const char *fmt, ...);
/* Adds s in a form safe for a terminal. Text from a target must not control the terminal, so characters that visible.h does not allow become '?'. */
void text_plain(struct text *t, const char *s);
/* Returns the string, which the caller must free(); t is empty again. */
char *text_take(struct text *t);

/* ---- JSON ---- */

/* Adds text from the target to an object; json_put() makes it safe. NULL adds null. */
void json_text(cJSON *object, const char *name, const char *s);
/* Adds a number, or null when it is negative. */
void json_known(cJSON *object, const char *name, int n);
/* Makes a string with an address in hex. */
cJSON *json_address(uint64_t addr);
/* Adds the JSON on one line, in the form of visible_json(), and deletes it. */
void json_put(struct text *t, cJSON *json);

/* ---- messages that say why something failed: malloc()ed, without a newline; NULL without memory ---- */

struct stop;
char *say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Stores a message made by say() in *why and evaluates to rc. */
#define fail(why, rc, ...)                                                                         \
    ({                                                                                             \
        int rc_ = (rc);                                                                            \
        *(why) = say(__VA_ARGS__);                                                                 \
        rc_;                                                                                       \
    })
/* Says why this process may not be read or traced. */
char *say_not_permitted(pid_t pid);
/* Says which process traces it; NULL: none does. */
char *say_traced(pid_t pid);
/* Says why stop_seize() or stop_borrow() failed. */
char *say_stop(pid_t pid, int rc, const struct stop *s);

#endif
