/* SPDX-License-Identifier: Apache-2.0 */
/*
 * visible.h - makes untrusted text (names of recorded programs, paths, answers of servers) safe to show on a terminal, in a page, or in JSON
 * that somebody prints on a terminal: characters with another effect (they move the cursor or change the direction of writing) become escapes.
 *
 *     visible_text(stderr, name);
 *     char *text = visible_json(cJSON_PrintUnformatted(j));
 *     tool_say("next: probing-convert %s out.db", visible_quoted(path, quoted, sizeof quoted));
 *
 * Write errors stay in the stream. No state.
 */
#ifndef PROBING_TRACES_VISIBLE_H
#define PROBING_TRACES_VISIBLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Whether the character is safe to show: no control character except newline and tab (terminals obey those from 0x7f on as well), and none
 * that changes the direction of writing, ends a line, or has no width. */
int visible_char(uint32_t c);

/* Writes the text with escapes (\x1b, \u202e) for unsafe characters, newlines, tabs and bytes that are no UTF-8. */
void visible_text(FILE *f, const char *text);
void visible_bytes(FILE *f, const void *text, size_t n);

/* Makes JSON text safe: unsafe characters in its strings become \u escapes (the same values for a reader), and bytes that are no UTF-8
 * become U+FFFD. Takes malloc()ed text and returns malloc()ed text in its place; NULL: no memory, or it was given NULL. */
char *visible_json(char *json);

/* Quotes the text for a shell where it needs quotes. Returns buf; what does not fit is cut off. */
const char *visible_quoted(const char *text, char *buf, size_t n);

#endif
