/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - turns bytes of a trace into text that SQL tools can show.
 *
 * What a trace calls text is arbitrary bytes: a file name need not be UTF-8, and a thread's name may be cut within a character. In the
 * database everything is UTF-8; invalid bytes become U+FFFD. Pure functions; results are malloc'ed and NUL-terminated, NULL when there is
 * no memory.
 */
#ifndef PROBING_CONVERTER_TEXT_H
#define PROBING_CONVERTER_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Returns n bytes as UTF-8; NUL bytes become U+FFFD too. *len (`len` may be NULL): length of the result. */
char *text_utf8(const void *p, size_t n, size_t *len);
/* Returns NUL-separated arguments as one command line, quoted so that a POSIX shell reads them back; a title as it is. */
char *text_command(const void *p, size_t n);
/* Returns n bytes as lower-case hex digits. */
char *text_hex(const void *p, size_t n);
/* Formats PY_VERSION_HEX as "3.11.2" or "3.13.0rc1"; "" for 0. buf holds 32 bytes. */
void text_python(uint64_t version, char *buf);

#endif
