/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script.h - shared by the methods that use the interpreter (pending.c, remote.c): makes the Python text that loads the stub,
 * writes it into the stopped process, waits until the process takes it, and else takes it back.
 */
#ifndef PROBING_INSPECT_SCRIPT_H
#define PROBING_INSPECT_SCRIPT_H

#include "inject.h"

#define SCRIPT_MAX    400
#define SCRIPT_WRITES 8
#define SCRIPT_BYTES  1024 /* largest size of one write */

/* One attempt. The struct of every method begins with it. */
struct script {
    struct inject *in;
    /* A line that loads the stub the way the interpreter imports a C extension, suppresses every exception and leaves no name behind. */
    char text[SCRIPT_MAX];
    unsigned n; /* what was written into the target, with the previous contents */
    struct script_write {
        uint64_t addr;
        size_t n;
        unsigned char before[SCRIPT_BYTES], after[SCRIPT_BYTES];
    } v[SCRIPT_WRITES];
};

/* A method. Its functions return as those of inject.h do; prepare and clean may be NULL. */
struct script_method {
    size_t size; /* size of its struct */
    const char *means;
    int (*find)(struct script *s);       /* finds all addresses; reads only */
    int (*check)(struct script *s);      /* is there a place for the text just now? */
    int (*prepare)(struct script *s);    /* called when the text has been made */
    int (*lay)(struct script *s);        /* process stopped: writes all by script_write() */
    int (*taken)(struct script *s);      /* 1: the text is being run */
    void (*take_back)(struct script *s); /* process stopped: undoes what has not run */
    void (*clean)(struct script *s);     /* called when the text has been run */
};
extern const struct script_method pending_method, remote_method;
/* Whether the method could be tried: 0, or -ENOTSUP with in->why. Reads only. */
int script_possible(struct inject *in, const struct script_method *m);
/* Runs a method; returns as those of inject.h do. A text that is not taken in time is taken back in another stop. If lay() fails, its writes are undone. */
int script_load(struct inject *in, const struct script_method *m, char **why);

/* Writes at most SCRIPT_BYTES. -ENOSPC: there were too many writes already, and nothing was written. */
int script_write(struct script *s, uint64_t addr, const void *buf, size_t n);
/* Sets `bits` in the 32-bit word at addr, by script_write(). */
int script_set(struct script *s, uint64_t addr, uint32_t bits);
/* Undoes all writes, newest first; leaves alone what the target has changed since. */
void script_undo(struct script *s);
int script_read(struct script *s, uint64_t addr, void *buf, size_t n);
/* Sets in->why; returns rc. */
int script_no(struct script *s, int rc, const char *why);

#endif
