/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads.h - the agent's own threads: how they are started, how many there are, and whether the process has any others.
 *
 *     thread_spawn(NULL, "probing-gil", 0, main, arg);     // detached, all signals blocked
 *     if (threads_left(&status) == THREADS_OURS) ...       // the program has ended: close the trace, then
 *     threads_exit(status);
 *
 * glibc ends a process, as by exit(0), when its last thread ends. It counts the agent's threads like any other, so a process whose main
 * thread has ended (by pthread_exit(), or as a thread that forked and returns in the child) would never end. The service thread
 * therefore checks whether any other thread is left, and if not does what glibc would have done.
 */
#ifndef PROBING_AGENT_THREADS_H
#define PROBING_AGENT_THREADS_H

#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>

/* Starts a thread of the agent; stack 0: the default size. With `join` the caller must join it; else it is detached and shares the
 * program's file descriptors. Returns 0 or -errno. Fork's child handler may call it. */
int thread_spawn(pthread_t *join, const char *name, size_t stack, void *(*run)(void *), void *arg);
/* Gives the calling thread, one of the agent's, a file descriptor table of its own. So what it opens takes no number that the program expects
 * to get, is in no list of the program's descriptors, and cannot be closed by the program; and it holds none of the program's files open.
 * Returns 0; or -errno (before Linux 5.9, or where a sandbox forbids it), and then nothing has changed. */
int threads_own_files(void);
/* The same for the service thread, which starts other threads that are to share the program's table: a waiting starter thread is kept for that.
 * The service thread must call threads_join_starter() before it ends. */
struct threads_starter {
    sem_t asked, answered;
    int err;
    size_t stack;
    struct start *start; /* thread to start; NULL: the starter is to end */
    pthread_t thread;
};
int threads_split_files(struct threads_starter *t);
void threads_join_starter(struct threads_starter *t);
/* Returns the number of the agent's threads, including those that do not run yet. Callable from any thread. */
int threads_count(void);

enum threads_left {
    THREADS_MAIN,   /* the main thread lives */
    THREADS_ENDING, /* the main thread is about to end */
    THREADS_OTHERS, /* the main thread has ended, other threads of the program go on */
    THREADS_OURS,   /* only ours are left: *status is what the process would have ended with */
};
enum threads_left threads_left(int *status);
/* Returns whether thread `tid` of this process is the agent's; with `perhaps` also when it may be: while a thread of the agent starts, any may. */
int threads_is_ours(uint32_t tid, int perhaps);
/* Returns whether the main thread had ended at the last call of threads_left(). */
int threads_main_ended(void);
/* If the calling thread is the main thread, makes it wake the service thread when it ends; else does nothing. */
void threads_watch_main(void);
/* Ends the process as glibc does when its last thread has ended, or as the signal in `status` does. Must not be called in a signal handler. */
void threads_exit(int status) __attribute__((noreturn));
/* To be called in a forked child: none of the agent's threads exists. Async-signal-safe. */
void threads_after_fork(void);

#endif
