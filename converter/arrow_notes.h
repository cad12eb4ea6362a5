/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_notes.h - what a stream reports besides its rows: the error that ended it, and lines about files. Shared by
 * the stream, which may be read by another thread, and whoever asks; counted.
 */
#ifndef PROBING_CONVERTER_ARROW_NOTES_H
#define PROBING_CONVERTER_ARROW_NOTES_H

#include <stddef.h>

/* One that the caller holds a reference to. NULL: no memory. */
struct arrow_notes *arrow_notes_new(void);
/* Takes another reference; returns n. */
struct arrow_notes *arrow_notes_ref(struct arrow_notes *n);
/* Gives a reference back; the last one frees. NULL is allowed. Any thread. */
void arrow_notes_free(struct arrow_notes *n);
/* The lines, as probing_notes_text(). */
size_t arrow_notes_text(struct arrow_notes *notes, char *buf, size_t n);

/* Adds the line "FILE: ...". Any thread. Returns err. */
int arrow_note(struct arrow_notes *n, int err, const char *file, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Says why the stream ends; takes the place of what was said before. Any thread. Returns err. */
int arrow_fail(struct arrow_notes *n, int err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The sentence of the last arrow_fail(), "" when there was none; valid while the notes are and no other fails. */
const char *arrow_failure(const struct arrow_notes *n);

#endif
