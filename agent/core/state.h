/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - what the files of agent/core share: the state of the recording, and the word that says whether the agent runs in
 * this very process. The parts (part.h) keep their own state.
 *
 *     OFF -> STARTING -> RUNNING -> STOPPING -> STOPPED -> STARTING ...
 *     OFF -> WAITING  -> STARTING            in a forked child: no file is made for a while,
 *               +-----------------> STOPPED  because most forked children exec or exit at once
 *
 * The word is a page with MADV_WIPEONFORK: in a child made by whatever means that copies memory (_Fork(), clone(), a fork() under way
 * as we came: none runs our handlers) it reads as OFF, with nothing that leads to the live file, which is not mapped there. In a child that
 * shares memory (vfork) its pid is not the child's. So a stale copy of the agent never believes that its threads exist.
 *
 * Who touches what: the word any thread, with __atomic; `wanted`, `config` and `how` whoever moved the phase to
 * STARTING or WAITING; all else the service thread, while fork_lock (agent/base/fork_lock.h) is held when it changes.
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
    uint32_t pid;      /* whose word this is; 0 in a child */
    uint32_t phase;    /* enum agent_phase, futex */
    uint32_t stop;     /* AGENT_STOP_ASKED: end the recording; `reason` is filled in */
    uint32_t wakers;   /* threads inside agent_wake(), which touch *live */
    struct live *live; /* set while it is mapped and RUNNING */
    struct live *open; /* (a) producer.c */
    uint32_t torch;    /* (a) which recording of PyTorch is in progress, 0: none (torch_thread.c) */
    int error;         /* why STARTING ended in STOPPED */
    char reason[32];
    int status; /* what exit() or _exit() was called with; -1: it was not, or is not known */
} __attribute__((aligned(4096))) agent_word;

struct agent {
    int wanted; /* this process is being recorded, so its forked children are to be */
    char how[16];
    struct agent_config config;
    char barred[128]; /* why the last try to record ended before its start, or "" */

    struct writer *writer;
    int asked; /* a request of the mailbox is in progress */
};

extern struct agent probing_agent;

/* Wakes the service thread. Async-signal-safe; safe while the live file is being closed. */
void agent_wake(void);
/* Sets the phase and wakes who waits for it. */
void agent_set_phase(enum agent_phase phase);
/* Waits while the phase is `phase`, at most timeout_ms. Returns the phase. Async-signal-safe. */
enum agent_phase agent_wait_phase(enum agent_phase phase, int timeout_ms);

/* service.c: the service thread. */
void *service_main(void *unused);

/* leftover.c: what other programs have left. */
/* After exec: completes the trace of the program that this very process ran before, which is as complete as a killed process's, and
 * whose live file says that the process still runs, so that nobody else may finish it until it ends. Looks in the directory of our
 * own live file, `own` at `own_path`, which is passed over. Only where no other agent can be in this process: at its start. How many it completed. */
int leftover_finish(const struct live *own, const char *own_path);
/* Before a new run begins (run_take()): finishes the traces FILE and FILE.d/... of dead processes, from live files in `run_dir`
 * (const char *), or where this process's own will be. */
void leftover_of_trace(const char *trace, void *run_dir);

#endif
