/* SPDX-License-Identifier: Apache-2.0 */
#include "question.h"

#include <stddef.h>
#include <string.h>

#define MOST 32

static char text[] = {
#include "tools/questions.sql.inc"
    0};

static struct question questions[MOST];
static unsigned count;

/* Splits the text where lines begin with one of the marks; each piece ends where the next begins. */
unsigned question_split(char *from, struct question *into, unsigned most) {
    struct question *q = NULL;
    unsigned n = 0;

    for (char *line = from, *next; line && *line; line = next) {
        char *end = strchr(line, '\n');
        next = end ? end + 1 : NULL;
        if (strncmp(line, "--", 2) != 0 || !strchr("@?!=", line[2]) || line[3] != ' ')
            continue;
        char *value = line + 4;
        if (end)
            *end = '\0';
        *line = '\0'; /* the SQL before it ends here */
        switch (line[2]) {
        case '@':
            if (n == most)
                return n;
            q = &into[n++];
            q->name = value;
            value[strcspn(value, ":")] = '\0';
            q->title = value + strlen(value) + 2;
            break;
        case '?':
            q->needs = value;
            break;
        case '!':
            q->nothing = value;
            q->part[q->nparts++].sql = next;
            break;
        default:
            if (q->nparts < QUESTION_PARTS)
                q->part[q->nparts++] = (struct question_part){value, next};
        }
    }
    return n;
}

const struct question *question_at(unsigned i) {
    if (!count)
        count = question_split(text, questions, MOST);
    return i < count ? &questions[i] : NULL;
}

const struct question *question_find(const char *name) {
    const struct question *q;

    for (unsigned i = 0; (q = question_at(i)); i++) {
        if (strcmp(q->name, name) == 0)
            return q;
    }
    return NULL;
}
