/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.h - for commands that take a while: prints their progress, and lets a signal end them.
 *
 *     struct progress g;
 *     progress_begin(&g, quiet);                       // from here on SIGINT, SIGTERM and SIGHUP are only recorded, for progress_stopped()
 *     while (work && !progress_stopped())
 *         if (progress_due(&g))
 *             progress_draw(&g, "%3.0f %%", part * 100); // one line on a terminal, over the previous one
 *     progress_say(&g, file, "damaged");               // a line of its own
 *     progress_end(&g);                                // clears the line, prints "99,990 more: ..." and restores the signals
 *
 * Progress is drawn on terminals only, and not in the first second. A signal that was ignored when the command started (nohup) stays
 * ignored. Pairs of begin and end may be nested; a signal goes to the innermost pair only.
 */
#ifndef PROBING_TOOLS_PROGRESS_H
#define PROBING_TOOLS_PROGRESS_H

#include <cjson/cJSON.h>
#include <signal.h>

/* For `quiet`: progress is not drawn, because it would disturb the command's own output, but inputs that are waited for are named. */
#define PROGRESS_UNDRAWN 2

#define PROGRESS_LINES 16 /* number of different lines that are counted */
#define PROGRESS_SAME  10 /* a line is printed for so many files, and counted for further ones */

struct progress {
    double start, drawn; /* tool_seconds() */
    /* tty: progress may be drawn; shown: it is on the screen; outer: the signal that the enclosing pair of begin and end had received, or 0 */
    int tty, shown, outer;
    struct sigaction before[3]; /* of SIGINT, SIGTERM and SIGHUP */
    struct {
        char line[160];
        unsigned n;
    } said[PROGRESS_LINES];
    unsigned next; /* the entry of `said` to be replaced next, if it was said only once */
};

/* quiet 0: draws progress and names inputs that are waited for; 1: does neither; or PROGRESS_UNDRAWN. */
void progress_begin(struct progress *g, int quiet);
void progress_end(struct progress *g);
/* Returns the signal that arrived, or 0. */
int progress_stopped(void);
/* Returns the seconds since progress_begin(). */
double progress_seconds(const struct progress *g);
/* Returns 1 when it is time to draw again. */
int progress_due(const struct progress *g);
void progress_draw(struct progress *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void progress_clear(struct progress *g);
/* Prints a line about an input, as tool_say(). When very many inputs have the same line, it is printed for the first ones and counted for
 * the others; progress_end() prints the count. */
void progress_say(struct progress *g, const char *file, const char *line);
/* Prints the summary of --json on stdout, and deletes it. */
void progress_print(cJSON *summary);

#endif
