/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_notes.h - what a stream reports besides its rows: the error that ended it, and lines about files. They are reference-counted,
 * because the stream, which another thread may read, shares them with whoever asks.
 */
#ifndef PROBING_CONVERTER_ARROW_NOTES_H
#define PROBING_CONVERTER_ARROW_NOTES_H

#include <stddef.h>

/* Returns notes with one reference, held by the caller; NULL: no memory. */
struct arrow_notes *arrow_notes_new(void);
/* Takes another reference; returns n. */
struct arrow_notes *arrow_notes_ref(struct arrow_notes *n);
/* Drops a reference; dropping the last one frees the notes. NULL is allowed. Any thread. */
void arrow_notes_free(struct arrow_notes *n);
/* Copies the lines, as probing_notes_text() does. */
size_t arrow_notes_text(struct arrow_notes *notes, char *buf, size_t n);

/* Adds the line "FILE: ...". Any thread. Returns err. */
int arrow_note(struct arrow_notes *n, int err, const char *file, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Records why the stream ends, in place of any earlier reason. Any thread. Returns err. */
int arrow_fail(struct arrow_notes *n, int err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns the sentence of the last arrow_fail(), "" when there was none; valid as long as the notes and until the next arrow_fail(). */
const char *arrow_failure(const struct arrow_notes *n);

#endif
