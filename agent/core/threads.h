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
 * thread therefore looks whether anybody else is left, and does what glibc would have done.
 */
#ifndef PROBING_AGENT_THREADS_H
#define PROBING_AGENT_THREADS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* Starts a thread of ours; stack 0: the default size. With `join` it is to be joined, else it is detached. 0 or -errno.
 * For fork's child handler too. */
int thread_spawn(pthread_t *join, const char *name, size_t stack, void *(*run)(void *), void *arg);
/* How many there are, those included that have not begun to run. Any thread. */
int threads_count(void);

enum threads_left {
    THREADS_MAIN,   /* the main thread lives */
    THREADS_ENDING, /* it is about to end */
    THREADS_OTHERS, /* it has ended, others of the program go on */
    THREADS_OURS,   /* none but ours: *status is what the process would have ended with */
};
enum threads_left threads_left(int *status);
/* Whether it is, or may be while one begins. Of the calling process; any thread. */
int threads_is_ours(uint32_t tid);
/* The id of the thread that forked this process, if it has this pthread_self(), else 0: from 3.11 on CPython keeps the parent's
 * where it was not told of the fork. */
uint32_t threads_forked(uint64_t ident);
/* Whether the main thread had ended when that was last asked. */
int threads_main_ended(void);
/* The calling thread, if it is the main one, is to wake the service thread when it ends. Others do nothing. */
void threads_watch_main(void);
/* Of a /proc/PID/stat: the main thread's state, the number of threads, the main thread's exit code (fields 3, 20, 52). 0 or -EIO. */
int threads_read_stat(const char *path, char *state, unsigned *threads, int *code);
/* Ends the process as glibc does when its last thread has ended. Not in a handler. */
void threads_exit(int status) __attribute__((noreturn));
/* In a forked child: none of them exists. Async-signal-safe. */
void threads_after_fork(void);

#endif
