/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.h - commands that take a while: what they say on the way, and that a signal ends them.
 *
 *     struct progress g;
 *     progress_begin(&g, quiet);                       // from here on SIGINT, SIGTERM and SIGHUP only set what progress_stopped() says
 *     while (work && !progress_stopped())
 *         if (progress_due(&g))
 *             progress_draw(&g, "%3.0f %%", part * 100); // one line on a terminal, over the last one
 *     progress_say(&g, file, "damaged");               // a line of its own
 *     progress_end(&g);                                // the line goes, "99,990 more: ..." is said, signals are as before
 *
 * Progress is for terminals: on anything else, and in the first second, nothing is drawn. A signal that the command was started with as
 * ignored (nohup) stays ignored. Pairs of begin and end may lie in each other; a signal belongs to the innermost one alone.
 */
#ifndef PROBING_TOOLS_PROGRESS_H
#define PROBING_TOOLS_PROGRESS_H

#include <cjson/cJSON.h>
#include <signal.h>

#define PROGRESS_LINES 16 /* different ones that are counted */
#define PROGRESS_SAME  10 /* files of which the same is said one by one */

struct progress {
    double start, drawn; /* tool_seconds() */
    int tty, shown, outer;
    struct sigaction before[3];
    struct {
        char line[160];
        unsigned n;
    } said[PROGRESS_LINES];
    unsigned next;
};

void progress_begin(struct progress *g, int quiet);
void progress_end(struct progress *g);
/* The signal that came, or 0. */
int progress_stopped(void);
/* Seconds since progress_begin(). */
double progress_seconds(const struct progress *g);
/* Whether it is time to draw again. */
int progress_due(const struct progress *g);
void progress_draw(struct progress *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void progress_clear(struct progress *g);
/* A line about an input, as tool_say(). What is the same of very many inputs is said of the first ones, and counted: progress_end(). */
void progress_say(struct progress *g, const char *file, const char *line);
/* The summary of --json, on stdout; deleted. */
void progress_print(cJSON *summary);

#endif
