/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inject.h - between the files of the injection: how the agent gets into a process (inspect.h says what a caller may ask for).
 * First it is checked (preflight), then files are put in place (stage), then a method loads the stub: native_load.c while
 * nothing stands against it (safety), or one of script.h. Functions return 0 or -errno; *why is a malloc()ed line.
 */
#ifndef PROBING_INSPECT_INJECT_H
#define PROBING_INSPECT_INJECT_H

#include "call.h"
#include "inspect.h"
#include "native.h"
#include "writer/live.h"

/* ---- preflight.c: what must be true before anything is done to a process, found out without touching it ---- */

struct preflight {
    uid_t uid;
    gid_t gid;
    uid_t uid_there; /* as the target itself sees it */
    pid_t pid_there;
    char root[64];    /* "/proc/PID/root" where the target sees other files than we, else "" */
    char cwd[4096];   /* as the target has it */
    uint64_t dlopen;  /* addresses in the target */
    uint64_t dlerror; /* 0: not found */
    uint64_t dlopen_flags;
    /* The C library's allocator: also the parts of it that have no name. Since 2.42 malloc jumps into such, and is seen in no stack then. */
    uint64_t malloc_start, malloc_end;
    struct call_code code;
    int has_python;              /* one that can be read: */
    struct pywalk_target python; /* where its things are, */
    uint64_t image;              /* and its file's first byte */
};

int preflight(struct preflight *p, pid_t pid, const struct proc_maps *maps, unsigned flags,
              char **why);

/* ---- filters.c ---- */

struct inject;
/*
 * Whether the seccomp filters of its threads let the agent in: none kills for what that calls. 0, or -errno with *why, which names the call.
 * Root outside of all filters reads them, in one stop of the process. Who is under as many filters in the same pid namespace is in
 * the same container, under the same ones: tried on ourselves. With --force all are let in.
 */
int filters_allow(struct inject *in, char **why);

/* ---- stage.c ---- */

/* A private directory of the target's user, where the target sees it, that holds a copy of libprobing-inject.so and its
 * inject.conf, and gets inject.status from it (agent.h). All is made with the file-system identity of the target's user
 * (setfsuid), and under the target's own root (openat2, RESOLVE_IN_ROOT): root never writes where another user, or
 * a container, could have laid a link. Mapped files live on when it is removed. */
struct stage {
    uid_t uid;
    gid_t gid;
    int made, locked, fresh; /* fresh: the run directory was made for this */
    int run, dir;            /* open directories: the run directory, and ours in it */
    char name[64];           /* ours, in the run directory */
    char lib_there[4096];    /* paths as the target has them */
};

int stage_make(struct stage *s, pid_t pid, const struct preflight *pre, const char *lib_dir,
               const char *conf, char **why);
/* A file beside the stub, for the target to read: its path there in *there (n bytes). */
int stage_file(struct stage *s, const char *name, const char *text, char *there, size_t n);
/* 0: nothing yet, 1: it went well; -EIO, -EALREADY, -EAGAIN (it could start no thread): text says why. */
int stage_status(struct stage *s, char *text, size_t n);
/* May be called twice, and for a zeroed struct stage. */
void stage_remove(struct stage *s);

/* ---- native_load.c: may a function be called in this process now? Judged by where each thread stands ---- */

/* A call of dlopen needs malloc, the loader and pthread_create. While a thread is inside one of these it may hold a lock or have
 * changed a list by half: the call could hang or corrupt the process. Then nothing is called, the process runs on, and the
 * caller tries again later. Pure functions on stacks that were read already. */

/* Why nothing may be called while a thread has this stack (innermost first): "in malloc"; or NULL. */
const char *safety_stack(const struct native_name *names, size_t n, char *buf, size_t cap);

/* Whether this thread itself could carry the call: the walk reached the thread's start, no signal handler is running. NULL, or why not. */
const char *safety_carrier(const struct native_name *names, size_t n, int complete);

/* ---- agentfile.c: the live file of the agent inside a process (writer/live.h), found in its mappings ---- */

/* The process may be another user's, and may change its file or cut it short while we read. So a writable one (for the mailbox)
 * is watched (live_watch), and a text in it may have lost its end.
 * Opens it; agentfile_close() ends that. 0; -ENOENT: no agent in this process; or what live_open() says. */
int agentfile_open(pid_t pid, const struct proc_maps *maps, int writable, struct live **out);
void agentfile_close(struct live *l);

/* Whether the agent was brought in only to be asked (PROBING_PASSIVE, agent.h): it has no trace. */
int agentfile_passive(const struct live *l);

/* ---- inject.c ---- */

struct inject {
    pid_t pid;
    unsigned flags;
    int passive;       /* wanted only to be asked */
    uint64_t image[2]; /* proc_image(), from before anything was learnt about it */
    unsigned execs;    /* how often it has begun another program since we came */
    struct proc_maps maps;
    struct preflight pre;
    struct stage stage;
    struct native *native;
    uint64_t stamp;       /* of the mappings that `native` knows */
    uint64_t *allocators; /* start addresses of files that bring a malloc of their own */
    size_t nallocators;
    struct native_frame frames[NATIVE_MAX]; /* the stack that is being judged, and its names */
    struct native_name names[NATIVE_MAX];
    uint64_t stood_ns, longest_ns; /* in all; the longest stop */
    int stood_before;              /* and longer, unknown how long */
    unsigned stops;
    int judged;    /* the seccomp filters that it runs under */
    int watched;   /* dlopen came back unwatched, without having loaded anything: find out why */
    pid_t child;   /* the stub's thread, held until the others run again */
    char why[256]; /* what stood against the last try */
    const char *means; /* how it got in, for the report */
};

/* The mappings, anew. 0, -ESRCH (a zombie has none), or -errno. */
int inject_maps(struct inject *in);
/* stop_release(), with its time in the report. */
void inject_release(struct inject *in, struct stop *s);
/* Lets the stub's thread run, which the kernel has held for us; or it is tried again. */
void inject_adopt(struct inject *in, int timeout_ms);
/* -ESTALE: what is known of it is of a program that it does not run any more. */
int inject_same(const struct inject *in);
/* Stops it, the program that we know. 0; -EAGAIN not just now, in->why says why; -ESTALE; or -errno with *why. */
int inject_stand(struct inject *in, struct stop *s, char **why);
/* Whether the stub is mapped there. */
int inject_mapped(struct inject *in);

/*
 * Each tries until its deadline. 0: the stub is loaded, or surely will be; -EAGAIN: nothing was done, or it has been undone, in->why says why;
 * -ENOTSUP: the same, and there is no use in trying again; another -errno: give up, with *why (malloc()ed) or without.
 */
int native_load(struct inject *in, char **why);

#endif
