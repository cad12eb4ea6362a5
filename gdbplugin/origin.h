/* SPDX-License-Identifier: Apache-2.0 */
/*
 * origin.h - an origin is what a process's memory and threads are read from: a live process (running or stopped), a core file, or GDB.
 *
 *     struct origin s;
 *     rc = origin_running(&s, pid, &why);            // nobody is stopped: memory and /proc only
 *     rc = origin_stop(&s, borrow, &why);            // of the running one that s is: registers too; stop_release(&s.stop) ends it
 *     rc = origin_core(&s, "core.123", &where, &why);
 *     rc = origin_given(&s, &given, &why);           // what GDB has
 *     ... s.v[i].regs, origin_read(&s, addr, buf, n), native.h, python.h ...
 *     origin_close(&s);
 *
 * Functions return 0 or -errno. On an error *why is a line for people (malloc()ed, or NULL), and s is closed.
 * Not thread-safe: an origin belongs to the thread that opened it.
 */
#ifndef PROBING_INSPECT_ORIGIN_H
#define PROBING_INSPECT_ORIGIN_H

#include "agent/pywalk/pywalk.h"
#include "inspect.h"
#include "stop.h"

enum origin_kind { ORIGIN_RUNNING, ORIGIN_STOPPED, ORIGIN_CORE, ORIGIN_GIVEN };

/* Which registers of a thread are known. */
enum origin_regs { REGS_NONE, REGS_PC_SP, REGS_ALL };

struct origin_thread {
    pid_t tid;
    pid_t inner; /* its id in the process's own pid namespace, the one that Python knows */
    enum origin_regs known;
    struct user_regs_struct regs;
    char name[32]; /* "": not known */
    char state;    /* as in /proc: R S D T Z; 0: not known */
};

struct core;
struct origin {
    enum origin_kind kind;
    pid_t pid;
    pid_t reader; /* thread by which memory is read, as the main one may have ended */
    struct pywalk_mem mem;
    void (*close)(struct origin *s); /* frees what this kind owns; may be NULL */
    /* Returns a line for people about what is missing (malloc()ed), or NULL when nothing is. The pointer may be NULL. */
    char *(*missing)(struct origin *s);
    struct proc_maps maps;
    size_t n;
    struct origin_thread *v; /* ascending by tid */
    char exe[1024];          /* the program; "": not known */
    char command[128];       /* command line of a core's process */
    int signal;              /* core: the signal that ended it, or 0, */
    pid_t struck;            /* and the thread that got the signal */
    struct stop stop;
    struct core *core;
    const struct inspect_given *given;
};

/* Where the files of a core are on this machine. Either may be NULL. */
struct origin_files {
    const char *sysroot, *exe;
};

int origin_running(struct origin *s, pid_t pid, char **why);
int origin_stop(struct origin *s, int borrow, char **why);
int origin_core(struct origin *s, const char *path, const struct origin_files *files, char **why);
int origin_given(struct origin *s, const struct inspect_given *given, char **why);
void origin_close(struct origin *s);

/* Reads memory. Returns 0 or -EFAULT. Has the type of a pywalk_read_fn. */
int origin_read(void *s, uint64_t addr, void *buf, size_t n);
/* Appends a thread with this id to s->v; NULL without memory. */
struct origin_thread *origin_add(struct origin *s, pid_t tid);
/* Compares two threads of s->v by tid, for qsort(). */
int origin_by_tid(const void *a, const void *b);
/* Returns the thread with this id, or NULL. */
struct origin_thread *origin_thread(struct origin *s, pid_t tid);

/* One observation of a thread of a running process: whether it is asleep in the kernel. */
struct origin_sleep {
    int asleep;      /* it is off the CPU, and ran_ns has all its running time */
    uint64_t ran_ns; /* total time on a CPU */
    uint64_t sp, pc; /* set while asleep */
    long call;       /* system call number; -1: none */
};
/* Observes a thread. It did not run between two observations that are equal and both find it asleep. */
void origin_observe(struct origin *s, pid_t tid, struct origin_sleep *out);

#endif
