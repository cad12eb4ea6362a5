/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect.h - libprobing-inspect: reads a live process from outside, and injects the agent into it. Used by
 * the GDB plugin through ctypes, and by `probing -t PID`.
 *
 *     char *out;
 *     struct inspect_stacks want = {.flags = INSPECT_JSON};
 *     int rc = inspect_backtrace(pid, &want, &out);
 *     if (rc == 0) puts(out); else fprintf(stderr, "cannot ...: %s\n", out);
 *     inspect_free(out);
 *
 * Each function returns 0 or -errno and sets *out: the answer, or one line that says what is wrong and what to do
 * (NULL only without memory). Not thread-safe; nothing here prints or exits.
 *
 * Functions that need the process stopped stop it by PTRACE_SEIZE and PTRACE_INTERRUPT for as short as possible (milliseconds). With INSPECT_BORROW it is
 * stopped already, because the calling thread traces it (GDB's main thread). inspect_inject() must not be called while GDB is attached: detach first.
 */
#ifndef PROBING_INSPECT_H
#define PROBING_INSPECT_H

#include <stdint.h>

#define INSPECT_EXPORT __attribute__((visibility("default")))

#define INSPECT_BORROW 1u /* do not stop the process: this thread traces it, and it is stopped */
#define INSPECT_JSON   2u
#define INSPECT_PYTHON 4u /* Python frames only */
#define INSPECT_FORCE  8u /* inject although a seccomp filter may kill, or without a Python */
/* inspect_backtrace() only: */
#define INSPECT_STOP        (1u << 16) /* stop the process while it is read: exact result */
#define INSPECT_NATIVE      (1u << 17) /* native frames only */
#define INSPECT_LOCALS      (1u << 18) /* arguments and locals of the Python frames */
#define INSPECT_TASKS       (1u << 19) /* asyncio tasks */
#define INSPECT_FOLDED      (1u << 20) /* one line per stack, for flame graphs */
#define INSPECT_COLOR       (1u << 21) /* text for a terminal */
#define INSPECT_MAIN        (1u << 22) /* the main thread only */
#define INSPECT_NEED_PYTHON (1u << 23) /* -ENODATA when no Python is found */

/*
 * How inspect_inject() loads the stub. INJECT_BY(INJECT_PENDING) in its flags allows only that method. The methods are tried in this order,
 * each with a deadline; a failed one leaves nothing behind. README.md explains the order.
 */
enum inject_method {
    INJECT_ANY,
    INJECT_NATIVE, /* native_load.c: a thread calls dlopen while none is in malloc, the loader ... */
    INJECT_PEP768,     /* remote.c: 3.14+: the interpreter runs a script of ours */
    INJECT_PENDING,    /* pending.c: 3.7-3.13: a pending call written into memory */
    INJECT_BREAKPOINT, /* in the list, but never done: see README.md */
    INJECT_METHODS
};
#define INJECT_DRY_RUN      (1u << 24) /* only does the preflight, and says what would be tried */
#define INJECT_BY(m)        ((unsigned)(m) << 25)
#define INJECT_METHOD_OF(f) ((enum inject_method)((f) >> 25 & 7))

#define INSPECT_STOOD UINT64_MAX

/* A thread as GDB knows it; the registers are in the order of struct user_regs_struct. */
struct inspect_thread {
    int tid;
    char name[32]; /* "" = not known */
    uint64_t regs[27];
};
/* A process that the caller reads for us: GDB's core or remote target. */
struct inspect_given {
    int pid;
    int (*read)(uint64_t addr, void *buf, uint64_t n); /* returns 0 if it read n bytes, else -1 */
    const char *maps;                                  /* lines like those of /proc/PID/maps */
    const char *exe;                                   /* may be NULL */
    const struct inspect_thread *threads;
    uint64_t n;
};
struct inspect_stacks {
    unsigned flags;
    int tid;          /* the only thread to show; 0: all */
    const char *core; /* a core file instead of a process, or NULL, and its files' place */
    const char *sysroot, *exe;
    const struct inspect_given *given; /* instead of a process, or NULL */
    uint64_t stood_ns;                 /* result: how long the process was stopped */
};
/*
 * Makes the stacks of the threads, Python and native frames merged, as text, JSON (documented in probing-backtrace(1)) or folded lines. A
 * live process is not stopped by default, and a thread that ran while it was read is marked; with INSPECT_STOP or INSPECT_BORROW it is read
 * while stopped. pid is ignored with a core or a given process.
 */
INSPECT_EXPORT int inspect_backtrace(int pid, struct inspect_stacks *want, char **out);

/*
 * Injects the agent. lib_dir: directory of libprobing-inject.so and libprobing-agent.so. conf: KEY=VALUE lines for it (agent.h), may be
 * empty; a relative PROBING_TRACE is relative to the target's working directory. stood_ns: how long the target has been stopped already (by
 * GDB's attach), which is added to the reported time; INSPECT_STOOD: for an unknown time, and the report says so. *out: one line for
 * people, "recording PID into PATH ...". Idempotent: a process that is recorded already is left alone, and the line says so.
 */
INSPECT_EXPORT int inspect_inject(int pid, const char *lib_dir, const char *conf, unsigned flags,
                                  uint64_t stood_ns, char **out);

/* Makes the status of the agent in the process, as text or JSON. -ENOENT: there is no agent. */
INSPECT_EXPORT int inspect_status(int pid, unsigned flags, char **out);

/* Sends a request to the agent (kind: enum mail_kind of live.h); *out is the reply. -ENOENT: no agent. */
INSPECT_EXPORT int inspect_mail(int pid, int kind, const char *request, int timeout_ms, char **out);

/* Interrupts the evaluation that inspect_mail() waits for now, or else the next one, which then answers with a KeyboardInterrupt. For a
 * SIGINT handler: async-signal-safe. inspect_mail_forget() makes it not apply to the next one. */
INSPECT_EXPORT void inspect_mail_interrupt(void);
INSPECT_EXPORT void inspect_mail_forget(void);

/* Removes the directories of killed injectors in this run directory, if it is our own; a live injector holds a lock (flock) on its
 * directory. A directory with a script that the interpreter has yet to run stays while the target lives. */
void inspect_sweep(const char *run);

INSPECT_EXPORT void inspect_free(char *text);

#endif
