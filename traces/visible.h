/* SPDX-License-Identifier: Apache-2.0 */
/*
 * visible.h - untrusted text (names of recorded programs, paths, answers of servers) on a terminal, in a page, or in JSON that somebody prints
 * on a terminal: what does more than be shown (moves the cursor, turns the direction of writing) becomes an escape.
 *
 *     visible_text(stderr, name);
 *     char *text = visible_json(cJSON_PrintUnformatted(j));
 *
 * Write errors stay in the stream. No state.
 */
#ifndef PROBING_TRACES_VISIBLE_H
#define PROBING_TRACES_VISIBLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Whether the character is shown and does nothing else: no control character but newline and tab (those behind 0x7f, which terminals
 * obey as well, neither), none that turns the direction of writing, ends a line, or has no width. */
int visible_char(uint32_t c);

/* The text with escapes for all else, and for newlines, tabs and bytes that are no UTF-8: \x1b, \u202e. */
void visible_text(FILE *f, const char *text);
void visible_bytes(FILE *f, const void *text, size_t n);

/* JSON that is written already, in place of which the caller gets it with \u escapes in its strings (the same values for who reads
 * it) and U+FFFD for bytes that are no UTF-8. Takes malloc()ed text, returns such; NULL: no memory, or it was given NULL. */
char *visible_json(char *json);

#endif
