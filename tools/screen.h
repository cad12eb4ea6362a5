/* SPDX-License-Identifier: Apache-2.0 */
/*
 * screen.h - a whole terminal for a command that draws itself again and again, and the keys that are pressed meanwhile.
 *
 *     struct screen *s;
 *     if (screen_open(&s) < 0) ...                     // -ENOTTY: standard input and output are no terminal
 *     screen_line(s, SCREEN_BOLD, "head %d", n);       // lines from the top; cut at the right edge, control characters escaped
 *     screen_show(s);
 *     int key = screen_key(s, 1000);                   // 0: nothing in a second; -EINTR: Ctrl-C, or a signal that ends programs
 *     screen_close(s);                                 // the terminal as it was, and what was said on stderr meanwhile
 *
 * Draws on the alternate screen; only escape sequences that every terminal of today has. One at a time, single-threaded.
 */
#ifndef PROBING_TOOLS_SCREEN_H
#define PROBING_TOOLS_SCREEN_H

#include <stdio.h>

enum { SCREEN_PLAIN, SCREEN_BOLD, SCREEN_REVERSE, SCREEN_DIM };
#define SCREEN_REDRAW 12 /* a key: Ctrl-L, and that the terminal has another size */
struct screen;

int screen_open(struct screen **out);
void screen_close(struct screen *s);
int screen_rows(const struct screen *s);
int screen_columns(const struct screen *s);
/* One line; past the last row: nothing. */
void screen_line(struct screen *s, int style, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void screen_show(struct screen *s);
int screen_key(struct screen *s, int ms);
/* Whether Ctrl-C, or a signal that ends programs, has come: what is waited for meanwhile is worth no more. */
int screen_ended(void);
/* What was said meanwhile is not to be said at the end: that it was interrupted. */
void screen_forget(const struct screen *s);
/* `text` on f without control characters, at most `columns` wide (0: no limit). */
void screen_text(FILE *f, const char *text, int columns);

#endif
