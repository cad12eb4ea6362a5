/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - state that the files of agent/core share: the state of the recording, and agent_word, which says whether the agent runs
 * in this very process. The parts (part.h) keep their own state.
 *
 *     OFF -> STARTING -> RUNNING -> STOPPING -> STOPPED -> STARTING ...
 *     OFF -> WAITING  -> STARTING            in a forked child: no file is made for a while (agent_begin_now()),
 *               +-----------------> STOPPED  because most forked children exec or exit at once
 *
 * agent_word is a page with MADV_WIPEONFORK. In a child that has a copy of the memory, it reads as OFF and has no pointer to the live file,
 * which is not mapped there; this holds also for children where our fork handlers do not run: after _Fork(), clone(), or a fork() that was in
 * progress when the agent came. In a child that shares the memory (vfork), the word's pid is not the child's. So a stale copy of the agent
 * never assumes that its threads exist. Access: any thread uses agent_word, with __atomic; the thread that moved the phase to STARTING or
 * WAITING uses `wanted`, `config` and `how`; the service thread uses all else, and holds fork_lock (agent/base/fork_lock.h) to change it.
 */
#ifndef PROBING_AGENT_STATE_H
#define PROBING_AGENT_STATE_H

#include <pthread.h>

#include "agent/core/config.h"
#include "writer/writer.h"

enum agent_phase {
    AGENT_OFF,
    AGENT_WAITING,
    AGENT_STARTING,
    AGENT_RUNNING,
    AGENT_STOPPING,
    AGENT_STOPPED,
};

enum { AGENT_STOP_NONE, AGENT_STOP_WRITING, AGENT_STOP_ASKED };

extern struct agent_word {
    uint32_t pid;      /* process that this word belongs to; 0 in a child */
    uint32_t phase;    /* enum agent_phase, futex */
    uint32_t stop;     /* AGENT_STOP_ASKED: end the recording; `reason` is filled in */
    uint32_t wakers;   /* threads inside agent_wake(), which touch *live */
    struct live *live; /* set while it is mapped and RUNNING */
    struct live *open; /* (a) producer.c */
    uint32_t torch;    /* (a) number of PyTorch's recording in progress; 0: none (torch_thread.c) */
    int error;         /* why STARTING ended in STOPPED */
    char reason[32];
    int status; /* argument of exit() or _exit(); -1: not called, or not known */
} __attribute__((aligned(4096))) agent_word;

struct agent {
    int wanted; /* this process is recorded, so its forked children are to be recorded, too */
    int no_forks; /* but none can be: the thread sanitizer ends a child of several threads that starts one */
    char how[16];
    struct agent_config config;
    char barred[128]; /* why the last attempt to record was refused, or "" */

    struct writer *writer;
    int asked; /* a request of the mailbox is in progress */
};

extern struct agent probing_agent;

/* Wakes the service thread. Async-signal-safe; safe while the live file is being closed. */
void agent_wake(void);
/* In a forked child that waits before it is recorded: begins at once. Any thread; async-signal-safe. */
void agent_begin_now(void);
/* Sets the phase and wakes the threads that wait for it. */
void agent_set_phase(enum agent_phase phase);
/* Waits while the phase is `phase`, for at most timeout_ms. Returns the phase then. Async-signal-safe. */
enum agent_phase agent_wait_phase(enum agent_phase phase, int timeout_ms);

/* service.c: the service thread. */
void *service_main(void *unused);

/* leftover.c: finishes traces that other programs have left. */
/* After exec: finishes the trace of the program that this very process ran before. That trace is as complete as a killed process's, but its
 * live file says that the process still runs, so that nobody else may finish it until it ends. Looks in the directory of our live file (`own`, at `own_path`),
 * which is skipped. To be called only at the agent's start, when no other agent can be in this process. Returns the number of traces finished. */
int leftover_finish(const struct live *own, const char *own_path);
/* Before a new run begins (run_take()): finishes the traces FILE and FILE.d/... of dead processes, from the live files in the
 * directory where this process's own live file will be. config: its struct agent_config. */
void leftover_of_trace(const char *trace, void *config);

#endif
