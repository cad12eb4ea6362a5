/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find.h - finds the CPython of a process, or of an ELF image, from outside. Nothing is stopped or changed.
 *
 *     struct pywalk_found py;
 *     rc = pywalk_find(pid, &py);
 *     rc = pywalk_init(&pw, (struct pywalk_mem){pywalk_read_process, (void *)(intptr_t)pid}, &py.target);
 *
 * Works for static and shared libpython, PIE or not, stripped or not, in a container or with the file
 * deleted: only dynamic symbols are used, read from the image in memory. Not async-signal-safe.
 */
#ifndef PROBING_PYWALK_FIND_H
#define PROBING_PYWALK_FIND_H

#include "pywalk.h"

#include <sys/types.h>

struct pywalk_found {
    struct pywalk_target target;
    uint64_t eval_start, eval_end; /* _PyEval_EvalFrameDefault; 0: not known */
    uint64_t cold_start, cold_end; /* its .cold part; 0: none */
    uint64_t image, image_end;     /* of libpython or the program */
    char path[1024]; /* its file as /proc/PID/maps has it; "" from pywalk_find_image */
};

/*
 * Looks through the mappings of the process: libpython first, then the program, then the rest.
 * 0; -ENOENT: no Python; -ENOTSUP: a Python whose version is not known; -EAGAIN: 3.6, not initialised yet; -ESRCH,
 * -EACCES, -EPERM: no such process, or it may not be read. target.pthread_tid_off is set to what this process's own
 * glibc has when a look into the target confirms it.
 */
int pywalk_find(pid_t pid, struct pywalk_found *out);

/* The same for one image whose first byte is at `start` (a core, a remote target). -ENOENT: it is no Python.
 * target.pthread_tid_off stays 0. */
int pywalk_find_image(struct pywalk_mem mem, uint64_t start, struct pywalk_found *out);

/* Whether it is a free-threaded build (3.13 and later): their layouts are not known. */
int pywalk_free_threaded(struct pywalk_mem mem, const struct pywalk_target *t);

#endif
