/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stacks.h - the stacks of a process as they were read, before they are written down: stacks.c fills this in from an origin,
 * render.c makes text, JSON or folded lines of it.
 */
#ifndef PROBING_INSPECT_STACKS_H
#define PROBING_INSPECT_STACKS_H

#include "native.h"
#include "python.h"

struct stack_local {
    char *name, *type, *value; /* type: NULL when not known */
    unsigned flags;            /* PYWALK_LOCAL_* */
};

struct stack_frame {
    int python;                /* 0: native, else the number of its Python, from 1 */
    unsigned flags;            /* Python: PYWALK_ENTRY, PYWALK_GENERATOR */
    uint64_t pc, probe;        /* native: as in native.h */
    char *func, *file;         /* as people read it; NULL: not known */
    struct pywalk_position at; /* native: its line alone */
    char *symbol, *module; /* native; NULL: not known. An inlined function is in no symbol table */
    uint64_t offset;       /* from the symbol's start */
    int inlined;           /* into the next frame */
    int cut;               /* Python: those that called it could not be read */
    struct stack_local *locals;
    size_t nlocals;
    int has_locals; /* they were asked for and could be read */
};

enum stack_state { STATE_UNKNOWN, STATE_RUNNING, STATE_IDLE, STATE_STOPPED, STATE_ENDED };
struct stack_thread {
    pid_t tid; /* 0: a Python thread state without a known thread */
    char name[64];
    enum stack_state state;
    int python;                 /* it has a Python thread state */
    unsigned flags;             /* PYWALK_*, of all interpreters that it is in */
    int consistent;             /* it did not run while it was read */
    int64_t interp;             /* id; -1: no Python */
    int torn;                   /* its Python frames could not be read, */
    int cut;                    /* or not all of them */
    char *problem;              /* a line for people, or NULL */
    struct stack_frame *frames; /* native, then those of each Python, until frames_merge() */
    size_t n;
    size_t nnative;
    int complete; /* the native walk reached the thread's first frame */
};

struct stacks {
    const struct origin *s;
    char python[24]; /* version; "" = no Python */
    char *missing;   /* lines for people, or NULL: what is not there, */
    char *note;      /* what can be said of Python */
    struct stack_thread *v;
    size_t n;
    uint64_t stood_ns;
    char *tasks;          /* asyncio tasks, as text or JSON */
    int tasks_consistent; /* no thread of Python ran while they were read */
};

/* render.c. malloc()ed, NULL without memory. */
char *render(struct stacks *st, unsigned flags);

/* ---- frames.c: the frames of one thread, for stacks.c ---- */

/*
 * frames_read() while it stands still (or may be running), then, when nobody waits any more, frames_merge() puts the native and
 * the Python ones into one order, and frames_name() says what the native ones are.
 */
struct known_code;
struct frames_reader {
    struct origin *s;
    struct native *native; /* NULL: no native frames */
    unsigned flags;
    struct python *py;
    int npy;
    struct known_code **codes;
    struct native_frame *nframes;
    struct pywalk_frame *pframes;
    size_t values; /* of locals that may still be read */
};

int frames_open(struct frames_reader *r);   /* 0 or -ENOMEM; frames_close() in both cases */
void frames_close(struct frames_reader *r); /* native and py too */
/* Why Python frames could not be read, for people. */
const char *frames_why(const struct origin *s, int rc);
/* Fills in t->frames and what Python knows of the thread. 0; -ENOMEM; or the -errno of the Python that could not be read: the rest is there. */
int frames_read(struct frames_reader *r, const struct origin_thread *src, struct stack_thread *t);
/* -ENOMEM, and then t is as it was. */
int frames_merge(const struct frames_reader *r, struct stack_thread *t);
/* Then: names and source lines of the native ones, and a frame for each inlined function. -ENOMEM: outer ones may be missing. */
int frames_name(const struct frames_reader *r, struct stack_thread *t);
void frames_free(struct stack_thread *t);

/* tasks.c: asyncio's tasks, read while the process stands still: text for people, a tree of who awaits whom; or a JSON list, which
 * probing-backtrace(1) documents. malloc()ed, NULL without memory. Where there can be no tasks the text says why, and the JSON is an empty list. */
char *tasks_read(const struct python *py, int npy, int json);

#endif
