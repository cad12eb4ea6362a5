/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inject.h - the interfaces between the files that inject the agent into a process (inspect.h is the interface for callers).
 * First the process is checked (preflight), then files are put in place (stage), then a method loads the stub: native_load.c
 * as long as a safe point is found (safety), or one of script.h. Functions return 0 or -errno; *why is a malloc()ed line.
 */
#ifndef PROBING_INSPECT_INJECT_H
#define PROBING_INSPECT_INJECT_H

#include "call.h"
#include "inspect.h"
#include "native.h"
#include "writer/live.h"

/* ---- preflight.c: checks what must be true before anything is done to a process, without touching it ---- */

struct preflight {
    uid_t uid;
    gid_t gid;
    uid_t uid_there; /* the user id as the target itself sees it */
    pid_t pid_there;
    char root[64];    /* "/proc/PID/root" where the target sees other files than we do, else "" */
    char cwd[4096];   /* path as seen by the target */
    uint64_t dlopen;  /* addresses in the target */
    uint64_t dlerror; /* 0: not found */
    uint64_t dlopen_flags;
    /* Code of the C library's allocator, with its parts that have no names. Since glibc 2.42 malloc jumps into such parts, and is in no stack then. */
    uint64_t malloc_start, malloc_end;
    struct call_code code;
    int has_python;              /* a Python that can be read: */
    struct pywalk_target python; /* addresses of its data, and */
    uint64_t image;              /* the address of its file's first byte */
};

int preflight(struct preflight *p, pid_t pid, const struct proc_maps *maps, unsigned flags,
              char **why);

/* ---- filters.c ---- */

struct inject;
/*
 * Whether the seccomp filters of the target's threads let the agent in, that is, none kills for the agent's calls. Returns 0, or -errno with *why,
 * which names the call. Root that is under no filter reads them, in one stop of the process. If we are under as many filters in the same pid
 * namespace, we are in the same container with the same filters, and the calls are tried in our own process. With --force the answer is always 0.
 */
int filters_allow(struct inject *in, char **why);

/* ---- stage.c ---- */

/* A private directory of the target's user, where the target sees it. It holds a copy of libprobing-inject.so and its inject.conf, and gets inject.status from
 * it (agent.h). Everything is made with the file-system identity of the target's user (setfsuid), and under the target's own root (openat2, RESOLVE_IN_ROOT):
 * root never writes where another user, or a container, could have placed a link. Mapped files live on when the directory is removed. */
struct stage {
    uid_t uid;
    gid_t gid;
    int made, locked, fresh; /* fresh: the run directory was made for this injection */
    int run, dir;            /* open directories: the run directory, and our directory in it */
    char name[64];           /* name of our directory, in the run directory */
    char lib_there[4096];    /* path as seen by the target */
};

int stage_make(struct stage *s, pid_t pid, const struct preflight *pre, const char *lib_dir,
               const char *conf, char **why);
/* Writes a file beside the stub for the target to read; `there` (n bytes) gets its path as seen by the target. */
int stage_file(struct stage *s, const char *name, const char *text, char *there, size_t n);
/* Reads inject.status. Returns 0: nothing yet; 1: success; -EIO, -EALREADY or -EAGAIN (no thread could be started): text says why. */
int stage_status(struct stage *s, char *text, size_t n);
/* May be called twice, and for a zeroed struct stage. */
void stage_remove(struct stage *s);

/* ---- native_load.c: whether a function may be called in this process now, judged by each thread's stack ---- */

/* A call of dlopen needs malloc, the loader and pthread_create. A thread inside one of these may hold a lock or have half changed a list: the call could hang
 * or corrupt the process. Then nothing is called, the process runs on, and the caller tries again later. Pure functions on stacks that were read already. */

/* Returns why nothing may be called while a thread has this stack (innermost first), such as "in malloc"; or NULL. */
const char *safety_stack(const struct native_name *names, size_t n, char *buf, size_t cap);

/* Whether this thread itself could make the call: the walk reached the thread's start, and no signal handler is running. Returns NULL, or why not. */
const char *safety_carrier(const struct native_name *names, size_t n, int complete);

/* ---- agentfile.c: the live file of the agent inside a process (writer/live.h), found in its mappings ---- */

/* The process may be another user's, and may change its file or truncate it while we read. So a writable one (for the mailbox) is watched (live_watch), and a
 * text in it may lack its NUL. Opens the file; agentfile_close() closes it. Returns 0; -ENOENT: no agent in this process; or live_open()'s error. */
int agentfile_open(pid_t pid, const struct proc_maps *maps, int writable, struct live **out);
void agentfile_close(struct live *l);

/* Whether the agent was loaded only to answer requests (PROBING_PASSIVE, agent.h): it has no trace. */
int agentfile_passive(const struct live *l);

/* ---- inject.c ---- */

struct inject {
    pid_t pid;
    unsigned flags;
    int passive;       /* wanted only to answer requests */
    uint64_t image[2]; /* proc_image() from before anything else was learnt about the process */
    unsigned execs;    /* number of other programs that it has begun meanwhile */
    struct proc_maps maps;
    struct preflight pre;
    struct stage stage;
    struct native *native;
    uint64_t stamp;       /* hash of the mappings that `native` knows */
    uint64_t *allocators; /* start addresses of files that define a malloc of their own */
    size_t nallocators;
    struct native_frame frames[NATIVE_MAX]; /* the stack that is being judged, and its names */
    struct native_name names[NATIVE_MAX];
    uint64_t stood_ns, longest_ns; /* total time stopped; the longest stop */
    int stood_before;              /* plus an unknown time, while GDB held it */
    unsigned stops;
    int judged;        /* its seccomp filters have been judged */
    int watched;       /* watch the next dlopen: the last one, not watched, loaded nothing */
    pid_t child;       /* the stub's thread, held until the others run again */
    char why[256];     /* what prevented the last try */
    const char *means; /* how the stub was loaded, for the report */
};

/* Reads the mappings again. Returns 0, -ESRCH (a zombie has none), or -errno. */
int inject_maps(struct inject *in);
/* Calls stop_release(), and adds the time of the stop to the report. */
void inject_release(struct inject *in, struct stop *s);
/* Lets the stub's thread run, which the kernel holds for us. Tries again in the next call when the thread has not stopped in time. */
void inject_adopt(struct inject *in, int timeout_ms);
/* Returns -ESTALE when the process no longer runs the program that our knowledge is about. */
int inject_same(const struct inject *in);
/* Stops the process if it still runs the program that we know. Returns 0; -EAGAIN: not just now, in->why says why; -ESTALE; or -errno with *why. */
int inject_stand(struct inject *in, struct stop *s, char **why);
/* Whether the stub is mapped in the process. */
int inject_mapped(struct inject *in);

/*
 * Methods. Each tries until its deadline. 0: the stub is loaded, or surely will be; -EAGAIN: nothing was done, or it has been undone,
 * in->why says why; -ENOTSUP: the same, and there is no use in trying again; another -errno: give up, with *why (malloc()ed) or without.
 */
int native_load(struct inject *in, char **why);

#endif
