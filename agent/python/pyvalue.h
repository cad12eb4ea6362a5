/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyvalue.h - converts a Python object to what a record can hold: a number or a short text.
 *
 *     struct pyvalue v;
 *     if (!pyvalue_take(obj, &v)) ... v.kind, v.number, v.text, v.n
 *     else: the Python error of its __repr__ or the like is set, and yours to clear
 *
 * int, float, bool, str and None need no Python code; for other types values.py is loaded on first use. A tensor in the CPU's
 * memory is read in place: no operator runs. For a tensor on a GPU a copy is started (PYVALUE_COMING: v.coming is a new
 * reference to it); pass it to pyvalue_arrived() at later steps until that does not return 0. With the GIL.
 */
#ifndef PROBING_AGENT_PYVALUE_H
#define PROBING_AGENT_PYVALUE_H

#include "writer/writer.h"

#define PYVALUE_TEXT 256

enum pyvalue_kind { PYVALUE_NONE, PYVALUE_INT, PYVALUE_REAL, PYVALUE_STR, PYVALUE_COMING };

struct pyvalue {
    enum pyvalue_kind kind; /* records.def, event_value.kind */
    double number;
    void *coming;
    size_t n; /* bytes of text; of an integer, too, if number may have rounded it */
    char text[PYVALUE_TEXT];
};

/* Returns 0, or -1 with a Python error set (also when values.py could not be loaded). */
int pyvalue_take(void *obj, struct pyvalue *v);
/* Returns 1: the copy has arrived, *v is filled in and `coming` released; 0: not yet; -1: it failed, `coming` is released and a Python error set. */
int pyvalue_arrived(void *coming, struct pyvalue *v);

/* A function or class of values.py, borrowed; NULL with a Python error set. */
void *pyvalue_helper(const char *name);
/* Writes a str to buf as UTF-8, cut to n - 1 bytes between characters; "?" if it is no str, or not valid Unicode. Returns the length. Clears errors. */
size_t pyvalue_text(void *str, char *buf, size_t n);
/* The same without a copy: the text belongs to the str. "?" for a str that is not valid Unicode (lone surrogates); NULL (no error set) if it is no str, or NULL. */
const char *pyvalue_utf8(void *str, size_t *n);

/* Sets the values kind, number and text of a record, which follow each other. */
void pyvalue_put(struct writer_value *to, const struct pyvalue *v);

#endif
