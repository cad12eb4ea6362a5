/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_run.h - runs one child in our place: it keeps the terminal, standard input and the process
 * group, and whatever is sent to us reaches it.
 *
 *     struct run_result r;
 *     rc = run_child(argv, setup, arg, &r);
 *     if (rc == 0) exit(r.signal ? 128 + r.signal : r.status);
 *
 * Signals: HUP INT QUIT TERM USR1 USR2 ALRM WINCH sent to us by a process go on to the child. Those
 * that the kernel sends (Ctrl-C, a hang-up) go to the whole process group, so the child has them
 * already: we only stay alive to see its end. What was ignored when we started (nohup) stays
 * ignored, here and there. When the child stops itself at an interactive terminal, we stop too, so
 * that the shell takes over. A signal that our launcher wants us to have when it ends (PR_SET_PDEATHSIG) is the child's at our end.
 * One child at a time; not from threads.
 */
#ifndef PROBING_TOOLS_RECORD_RUN_H
#define PROBING_TOOLS_RECORD_RUN_H

#include <stdint.h>

struct run_result {
    int status; /* exit code, when signal is 0 */
    int signal; /* that killed it, or 0 */
    int pid;
    int exec_error;   /* errno of execvp(), or 0: then nothing ran */
    uint64_t wall_ns; /* from fork to its end */
};

/* 1: what we say about a program neither kills us nor keeps it from running where standard error is a pipe that nobody reads or a
 * file at its limit of size. 0: as before, for the program; run_child() does that in the child. */
void run_signals(int ours);
/* setup(arg) runs in the child just before exec. 0, or -errno when there was no child. */
int run_child(char **argv, void (*setup)(void *arg), void *arg, struct run_result *out);

/* Where `command` would be found, as execvp() does. 0; -ENOENT; -EACCES found but not executable. */
int run_find(const char *command, char *path, unsigned long n);

#endif
