/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python.h - the CPythons of an origin: usually one, none, or two (a program with a libpython of its own that loads another).
 *
 *     struct python *py;
 *     n = python_find(&py, &source, &note);
 *     python_list(&py[0], &source);              // thread states; of a running process: again for each reading
 *     t = python_thread(&py[0], tid, fs_base, NULL);
 *     python_free(py, n);
 */
#ifndef PROBING_INSPECT_PYTHON_H
#define PROBING_INSPECT_PYTHON_H

#include "agent/pywalk/find.h"
#include "origin.h"

#define PYTHON_MAX 4

struct python {
    struct pywalk pw;
    struct pywalk_found found;
    struct pywalk_thread *threads; /* from python_list() */
    int n;                         /* their number, or -errno */
    int more;                      /* -errno: why the list is incomplete */
    char version[24];              /* "3.11.2" */
};

/* Returns how many were found (0: none). *note: one line for people about a Python that cannot be read, malloc()ed, or NULL. */
int python_find(struct python **out, struct origin *s, char **note);
/* Whether this Python's eval loop has code at addr, as far as the image shows. */
int python_is_eval(const struct python *py, uint64_t addr);
/* Reads the list of thread states into py->threads and py->n. */
void python_list(struct python *py, struct origin *s);
/* Returns a thread state of a thread, given by its kernel id or its FS base (0: not known). A thread has one state for each interpreter
 * that it is in, the newest first; returns the first one, or the one after `last`. NULL: there is none. */
const struct pywalk_thread *python_thread(const struct python *py, pid_t tid, uint64_t fs_base,
                                          const struct pywalk_thread *last);
void python_free(struct python *py, int n);

#endif
