/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.h - shared by the commands on a live process: sending requests to its agent, injecting an agent when it has none, and Ctrl-C.
 *
 *     target_catch_interrupt(NULL);
 *     char *out;
 *     int rc = target_ask(pid, MAIL_EVAL, "1+1", 10, 1, &out);     // 0: out is the answer; else out is one line on why there is none
 *     ... inspect_free(out);
 *
 * While waiting for an answer, the first Ctrl-C asks the agent to interrupt the evaluation, which then answers with a KeyboardInterrupt;
 * the second one makes the program leave. Nothing else is ever done to the target. Single-threaded.
 */
#ifndef PROBING_TOOLS_TARGET_H
#define PROBING_TOOLS_TARGET_H

#include <poll.h>

#include "../gdbplugin/inspect.h"
#include "../writer/live.h"

/* Calls inspect_inject() with the stub of this installation. Returns 0 or -errno, and sets *out as inspect_inject() does. */
int target_inject(int pid, const char *conf, unsigned flags, char **out);
/* Calls inspect_mail(); with `bring`, first injects an agent that records nothing when there is none. -EINTR: Ctrl-C came meanwhile. */
int target_ask(int pid, int kind, const char *request, double timeout, int bring, char **out);
/* Prints the answer to an evaluation: output, then value, on stdout; traceback on stderr. Returns TOOL_OK, or TOOL_PARTIAL. */
int target_show(const char *answer);

/* From now on handles Ctrl-C as above. before_exit (async-signal-safe; may be NULL) is called before a Ctrl-C makes the program leave. */
void target_catch_interrupt(void (*before_exit)(void));
/* Also calls `also` (async-signal-safe) at each Ctrl-C, to stop what is running in this program. */
void target_on_interrupt(void (*also)(void));
/* Returns 1 when there was a Ctrl-C since the last call; it then no longer affects later requests. */
int target_interrupted(void);
/* Returns the number of Ctrl-Cs since that call, without clearing it. */
int target_interrupts(void);
/* Calls poll(); returns -errno on failure. A Ctrl-C that came before, and that nobody has asked about, ends it like one that comes
 * meanwhile: -EINTR. */
int target_wait(struct pollfd *fds, unsigned long n, int ms);

/* Returns the WORD of `probing -t PID WORD ...`, "" when there is none. */
const char *target_word(int argc, char **argv);
/* Parses a process id from the command line; a thread's id stands for its process. Returns 0, or the exit code after printing why. */
int target_pid(const char *text, int *pid);

/* One function for each word; argv is that of main(), including `-t PID`. */
int cmd_eval(int argc, char **argv);
int cmd_repl(int argc, char **argv);
int cmd_watch(int argc, char **argv);
int cmd_config(int argc, char **argv);

#endif
