/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stacks.h - the stacks of a process as they were read: stacks.c fills them in from an origin, and render.c turns them into text, JSON or folded lines.
 */
#ifndef PROBING_INSPECT_STACKS_H
#define PROBING_INSPECT_STACKS_H

#include "native.h"
#include "python.h"

struct stack_local {
    char *name, *type, *value; /* type: NULL when not known */
    unsigned flags;            /* PYWALK_LOCAL_* */
};

#define STACK_FRAME_CUT (1u << 31) /* its callers could not be read */
struct stack_frame {
    int python;                /* 0: native, else the number of its Python, from 1 */
    unsigned flags;            /* Python: PYWALK_ENTRY, PYWALK_GENERATOR, STACK_FRAME_CUT */
    uint64_t pc, probe;        /* native: as in native.h */
    char *func, *file;         /* for people; NULL: not known */
    struct pywalk_position at; /* native: only the line is set */
    char *symbol, *module;     /* native; NULL: not known, as for inlined functions */
    uint64_t offset;           /* from the symbol's start */
    int inlined;               /* it is inlined into the next frame */
    struct stack_local *locals;
    size_t nlocals;
    int has_locals; /* locals were requested and could be read */
};

enum stack_state { STATE_UNKNOWN, STATE_RUNNING, STATE_IDLE, STATE_STOPPED, STATE_ENDED };
struct stack_thread {
    pid_t tid; /* 0: a Python thread state without a known thread */
    char name[64];
    enum stack_state state;
    int python;                 /* it has a Python thread state */
    unsigned flags;             /* flags PYWALK_* of all its interpreters, combined */
    int consistent;             /* the thread did not run while it was read */
    int64_t interp;             /* interpreter id; -1: no Python */
    int torn;                   /* its Python frames could not be read */
    int cut;                    /* some of its Python frames could not be read */
    char *problem;              /* a line for people, or NULL */
    struct stack_frame *frames; /* native, then those of each Python, until frames_merge() */
    size_t n;
    size_t nnative;
    int complete; /* the native walk reached the thread's first frame */
};

struct stacks {
    const struct origin *s;
    char python[24]; /* version; "": no Python */
    char *missing;   /* lines for people, or NULL: what is missing, */
    char *note;      /* and a remark on Python */
    struct stack_thread *v;
    size_t n;
    uint64_t stood_ns;
    char *tasks;          /* asyncio tasks, as text or JSON */
    int tasks_consistent; /* no thread of Python ran while they were read */
};

/* render.c: makes the text. malloc()ed, NULL without memory. */
char *render(struct stacks *st, unsigned flags);

/* ---- frames.c: the frames of one thread, for stacks.c ---- */

/*
 * Order of calls: frames_read() while the thread is stopped (or may be running). Then, with the process running again, frames_merge() puts
 * the native and the Python frames into one order, and frames_name() names the native ones.
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
    size_t values; /* number of locals' values that may still be read */
};

int frames_open(struct frames_reader *r);   /* 0 or -ENOMEM; call frames_close() in both cases */
void frames_close(struct frames_reader *r); /* also closes native, frees py */
/* Explains to people why Python frames could not be read. */
const char *frames_why(const struct origin *s, int rc);
/* Fills in t->frames and the thread's Python state. Returns 0; -ENOMEM; or the -errno of the Python that could not be read, with the rest filled in. */
int frames_read(struct frames_reader *r, const struct origin_thread *src, struct stack_thread *t);
/* Returns 0, or -ENOMEM with t unchanged. */
int frames_merge(const struct frames_reader *r, struct stack_thread *t);
/* Call it last: adds names and source lines to the native frames, and a frame for each inlined function. -ENOMEM: outer frames may be missing. */
int frames_name(const struct frames_reader *r, struct stack_thread *t);
void frames_free(struct stack_thread *t);

/* tasks.c: reads asyncio's tasks. Returns text for people, a tree of who awaits whom, or a JSON list, which probing-backtrace(1) documents;
 * malloc()ed, NULL without memory. If there can be no tasks the text says why, and the JSON is an empty list. */
char *tasks_read(const struct python *py, int npy, int json);

#endif
