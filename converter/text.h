/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - bytes of a trace as text that SQL tools can show.
 *
 * What a trace calls text is bytes: a file name need not be UTF-8, a thread's name may be cut in a
 * character. In the database everything is UTF-8: what is not becomes U+FFFD. Pure functions; results are malloc'ed
 * and NUL-terminated, NULL when there is no memory.
 */
#ifndef PROBING_CONVERTER_TEXT_H
#define PROBING_CONVERTER_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* UTF-8 of n bytes; NUL bytes become U+FFFD too. *len (may be NULL): its length. */
char *text_utf8(const void *p, size_t n, size_t *len);
/* Arguments separated by NUL as one command line that a POSIX shell would read back. */
char *text_command(const void *p, size_t n);
/* Lower-case hex digits of n bytes. */
char *text_hex(const void *p, size_t n);
/* PY_VERSION_HEX as "3.11.2", "3.13.0rc1"; "" for 0. buf holds 32 bytes. */
void text_python(uint64_t version, char *buf);

#endif
