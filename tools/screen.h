/* SPDX-License-Identifier: Apache-2.0 */
/*
 * screen.h - a full-screen terminal for a command that redraws itself again and again, and its key presses.
 *
 *     struct screen *s;
 *     if (screen_open(&s) < 0) ...                     // -ENOTTY: standard input or output is no terminal
 *     screen_line(s, SCREEN_BOLD, "head %d", n);       // adds a line, from the top down; cut at the right edge, control characters escaped
 *     screen_show(s);
 *     int key = screen_key(s, 1000);                   // 0: none within a second; -EINTR: Ctrl-C, or another signal that ends programs
 *     screen_close(s);                                 // restores the terminal, and prints what was written to stderr meanwhile
 *
 * It draws on the alternate screen, using only escape sequences that all of today's terminals have. One at a time, single-threaded.
 */
#ifndef PROBING_TOOLS_SCREEN_H
#define PROBING_TOOLS_SCREEN_H

#include <stdio.h>

enum { SCREEN_PLAIN, SCREEN_BOLD, SCREEN_REVERSE, SCREEN_DIM };
#define SCREEN_REDRAW 12 /* a key: Ctrl-L, or the terminal has changed its size */
struct screen;

int screen_open(struct screen **out);
void screen_close(struct screen *s);
int screen_rows(const struct screen *s);
int screen_columns(const struct screen *s);
/* Adds one line; does nothing past the last row. */
void screen_line(struct screen *s, int style, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void screen_show(struct screen *s);
int screen_key(struct screen *s, int ms);
/* Returns 1 when Ctrl-C, or another signal that ends programs, has arrived, so that nothing needs to be waited for any more. */
int screen_ended(void);
/* Drops what was written to stderr meanwhile, which only says that the command was interrupted. */
void screen_forget(const struct screen *s);
/* Writes `text` to f without control characters, at most `columns` wide (0: no limit). */
void screen_text(FILE *f, const char *text, int columns);

#endif
