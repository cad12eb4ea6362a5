/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script.h - what the methods that go through the interpreter share (pending.c, remote.c): the Python text that loads the stub,
 * and the way it is laid into a process that stands still, waited for, and taken back.
 */
#ifndef PROBING_INSPECT_SCRIPT_H
#define PROBING_INSPECT_SCRIPT_H

#include "inject.h"

#define SCRIPT_MAX    400
#define SCRIPT_WRITES 8
#define SCRIPT_BYTES  1024 /* of one write */

/* One attempt: every method's own struct begins with it. */
struct script {
    struct inject *in;
    /* A line that loads the stub by the interpreter's own import of a C extension, keeps every exception to itself and leaves
     * no name behind. */
    char text[SCRIPT_MAX];
    unsigned n; /* what was written into the target, with what was there before */
    struct script_write {
        uint64_t addr;
        size_t n;
        unsigned char before[SCRIPT_BYTES], after[SCRIPT_BYTES];
    } v[SCRIPT_WRITES];
};

/* A method. Its functions return as those of inject.h do; prepare and clean may be NULL. */
struct script_method {
    size_t size; /* of its struct */
    const char *means;
    int (*find)(struct script *s);    /* where all is; reads only */
    int (*check)(struct script *s);   /* is there a place for the text just now? */
    int (*prepare)(struct script *s); /* the text is made */
    int (*lay)(struct script *s);     /* the process stands still: each write by script_write() */
    int (*taken)(struct script *s);   /* 1: the text is being run */
    void (*take_back)(struct script *s); /* what was not taken; it stands still */
    void (*clean)(struct script *s);     /* the text has been run */
};
extern const struct script_method pending_method, remote_method;
/* Whether it could be tried: 0, or -ENOTSUP with in->why. Reads only. */
int script_possible(struct inject *in, const struct script_method *m);
/* As the methods of inject.h. What is not taken in time is taken back in another stop. An error of lay() undoes what it wrote. */
int script_load(struct inject *in, const struct script_method *m, char **why);

/* At most SCRIPT_BYTES; -ENOSPC when there were too many writes: then nothing was written. */
int script_write(struct script *s, uint64_t addr, const void *buf, size_t n);
/* The same, with these bits of the word there set. */
int script_set(struct script *s, uint64_t addr, uint32_t bits);
/* Newest first; what the target has changed since is left alone. */
void script_undo(struct script *s);
int script_read(struct script *s, uint64_t addr, void *buf, size_t n);
/* Sets in->why; returns rc. */
int script_no(struct script *s, int rc, const char *why);

#endif
