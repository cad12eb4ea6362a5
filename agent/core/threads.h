/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads.h - the agent's own threads: how they are started, how many there are, and whether the process has any others.
 *
 *     thread_spawn(NULL, "probing-gil", 0, main, arg);     // detached, all signals blocked
 *     if (threads_left(&status) == THREADS_OURS) ...       // the program has ended: close the trace, then
 *     threads_exit(status);
 *
 * glibc ends a process, as by exit(0), when the last thread ends. Ours are threads to it like any other, so a process whose main
 * thread has ended (pthread_exit(), or a thread that forked and returns in the child) would live on for them. The service
 * thread therefore checks whether anybody else is left, and does what glibc would have done.
 */
#ifndef PROBING_AGENT_THREADS_H
#define PROBING_AGENT_THREADS_H

#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>

/* Starts a thread of ours; stack 0: the default size. With `join` it is to be joined, else it is detached and has the program's
 * file descriptors. 0 or -errno. For fork's child handler too. */
int thread_spawn(pthread_t *join, const char *name, size_t stack, void *(*run)(void *), void *arg);
/* The calling thread, one of ours, gets a table of file descriptors of its own: what it opens takes no number that the program expects to
 * get, is in no list of the program's descriptors, and cannot be closed by it; none of the program's files is held open. 0 or -errno
 * (before Linux 5.9, or where a sandbox forbids it): then nothing has changed. */
int threads_own_files(void);
/* The same for the service thread, which starts others that are to have the program's: one that waits is kept for that. Then the thread
 * calls threads_join_starter() before it ends. */
struct threads_starter {
    sem_t asked, answered;
    int err;
    size_t stack;
    struct start *start; /* NULL: it is to end */
    pthread_t thread;
};
int threads_split_files(struct threads_starter *t);
void threads_join_starter(struct threads_starter *t);
/* How many there are, those included that have not begun to run. Any thread. */
int threads_count(void);

enum threads_left {
    THREADS_MAIN,   /* the main thread lives */
    THREADS_ENDING, /* it is about to end */
    THREADS_OTHERS, /* it has ended, others of the program go on */
    THREADS_OURS,   /* none but ours: *status is what the process would have ended with */
};
enum threads_left threads_left(int *status);
/* Whether it is; with `perhaps` also whether it may be, which any thread may while one of ours begins. Of the calling process. */
int threads_is_ours(uint32_t tid, int perhaps);
/* Whether the main thread had ended when that was last asked. */
int threads_main_ended(void);
/* The calling thread, if it is the main one, is to wake the service thread when it ends. Others do nothing. */
void threads_watch_main(void);
/* Ends the process as glibc does when its last thread has ended. Not in a handler. */
void threads_exit(int status) __attribute__((noreturn));
/* In a forked child: none of them exists. Async-signal-safe. */
void threads_after_fork(void);

#endif
