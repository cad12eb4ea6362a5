/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_run.h - runs one child in our place: the child keeps the terminal, standard input and the process group, and receives the signals
 * that are sent to us.
 *
 *     struct run_result r;
 *     rc = run_child(argv, setup, arg, &r);
 *     if (rc == 0) exit(r.signal ? 128 + r.signal : r.status);
 *
 * Signals: HUP INT QUIT TERM USR1 USR2 ALRM WINCH that a process sends to us are passed on to the child. Those that the kernel sends
 * (Ctrl-C, a hang-up) go to the whole process group, so the child gets them anyway, and we only survive them to see the child's end. A
 * signal that was ignored when we started (nohup) stays ignored, in us and in the child. When the child stops itself at an interactive
 * terminal, we stop too, so that the shell takes over. When our launcher wants us to get a signal at its own end (PR_SET_PDEATHSIG), the
 * child gets that signal at our end. One child at a time; not from threads.
 */
#ifndef PROBING_TOOLS_RECORD_RUN_H
#define PROBING_TOOLS_RECORD_RUN_H

#include <stdint.h>

struct run_result {
    int status; /* exit code, when signal is 0 */
    int signal; /* the signal that killed it, or 0 */
    int pid;
    int exec_error;   /* errno of execvp(), or 0; when it is set, nothing ran */
    uint64_t wall_ns; /* from fork to the end of the child */
};

/* 1: our messages neither kill us nor keep the program from running when standard error is a pipe that nobody reads or a file at its size
 * limit. 0: restores the signals for the program; run_child() does that in the child. */
void run_signals(int ours);
/* Runs setup(arg) in the child just before exec. Returns 0, or -errno when there was no child. */
int run_child(char **argv, void (*setup)(void *arg), void *arg, struct run_result *out);

/* Finds `command` as execvp() does. Returns 0; -ENOENT; -EACCES: found, but not executable. */
int run_find(const char *command, char *path, unsigned long n);

#endif
