/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../converter/source.h"
#include "../traces/visible.h"
#include "common.h"

/* seconds before progress is drawn for the first time, and from one drawing to the next */
#define FIRST 1.0
#define AGAIN 0.2

static const int signals[3] = {SIGINT, SIGTERM, SIGHUP};
/* The signal that arrived, or 0; unseen: progress_stopped() was not called since. */
static volatile sig_atomic_t stopped, unseen;

static void on_signal(int sig) {
    stopped = sig;
    unseen = 1;
}

/* Returns the file's name as it stands in a sentence. */
static const char *name_of(const char *file) {
    return strcmp(file, "-") == 0 ? "standard input" : file;
}

static void say_waits(const char *path) {
    tool_say("%s: nothing has come through it yet: it is waited for", name_of(path));
}

void progress_begin(struct progress *g, int quiet) {
    struct sigaction sa = {.sa_handler = on_signal};

    *g = (struct progress){.start = tool_seconds()};
    g->tty = !quiet && isatty(STDERR_FILENO);
    g->outer = __atomic_exchange_n(&stopped, 0, __ATOMIC_SEQ_CST);
    source_stopped = progress_stopped;
    source_waits = quiet == 1 ? NULL : say_waits;
    for (int i = 0; i < 3; i++) {
        sigaction(signals[i], NULL, &g->before[i]);
        if (g->before[i].sa_handler != SIG_IGN)
            sigaction(signals[i], &sa, NULL);
    }
    signal(SIGXFSZ, SIG_IGN); /* a file size limit then gives an error, which is reported */
}

void progress_end(struct progress *g) {
    char text[TOOL_TEXT];

    progress_clear(g);
    for (unsigned i = 0; i < PROGRESS_LINES; i++)
        if (g->said[i].n > PROGRESS_SAME)
            tool_say("%s more: %s", tool_count(g->said[i].n - PROGRESS_SAME, text),
                     g->said[i].line);
    for (int i = 0; i < 3; i++)
        sigaction(signals[i], &g->before[i], NULL);
    int late = unseen ? stopped : 0;
    stopped = g->outer;
    unseen = 0;
    if (late) /* nobody has acted on this signal: the handler from before gets it */
        raise(late);
}

int progress_stopped(void) {
    int sig = stopped;

    if (sig)
        unseen = 0;
    return sig;
}

double progress_seconds(const struct progress *g) {
    return tool_seconds() - g->start;
}

int progress_due(const struct progress *g) {
    double t = g->tty ? tool_seconds() : 0;

    return g->tty && t - g->start > FIRST && t - g->drawn > AGAIN;
}

void progress_draw(struct progress *g, const char *fmt, ...) {
    va_list ap;

    fprintf(stderr, "\r%s: ", tool_name);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputs("\033[K", stderr);
    g->drawn = tool_seconds();
    g->shown = 1;
}

void progress_clear(struct progress *g) {
    if (g->shown)
        fputs("\r\033[K", stderr);
    g->shown = 0;
}

/* Counts a line and returns how often it was said, including this time. Lines said only once make room for new ones; lines too long to keep are not counted. */
static unsigned said(struct progress *g, const char *line) {
    unsigned i = 0;

    if (strlen(line) >= sizeof g->said->line)
        return 1;
    while (i < PROGRESS_LINES && strcmp(g->said[i].line, line) != 0)
        i++;
    for (unsigned k = 0; i == PROGRESS_LINES && k < PROGRESS_LINES; k++, g->next++)
        if (g->said[g->next % PROGRESS_LINES].n < 2) {
            i = g->next++ % PROGRESS_LINES;
            g->said[i].n = 0;
            strcpy(g->said[i].line, line);
        }
    return i < PROGRESS_LINES ? ++g->said[i].n : 1;
}

void progress_say(struct progress *g, const char *file, const char *line) {
    if (said(g, line) > PROGRESS_SAME)
        return;
    progress_clear(g);
    tool_say("%s: %s", name_of(file), line);
}

void progress_print(cJSON *summary) {
    char *text = visible_json(cJSON_Print(summary));

    puts(text ? text : "{}");
    free(text);
    cJSON_Delete(summary);
}
