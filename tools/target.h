/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.h - what the commands on a live process share: asking its agent, bringing one in where there is none, and Ctrl-C.
 *
 *     target_catch_interrupt(NULL);
 *     char *out;
 *     int rc = target_ask(pid, MAIL_EVAL, "1+1", 10, 1, &out);     // 0: out is the answer; else one line why not
 *     ... inspect_free(out);
 *
 * While an answer is waited for, the first Ctrl-C asks the agent to interrupt the evaluation, which then answers with a
 * KeyboardInterrupt; the second one leaves. Nothing else is ever done to the target. Single-threaded.
 */
#ifndef PROBING_TOOLS_TARGET_H
#define PROBING_TOOLS_TARGET_H

#include <poll.h>

#include "../gdbplugin/inspect.h"
#include "../writer/live.h"

/* inspect_inject() with the stub of this installation. 0 or -errno; *out as there. */
int target_inject(int pid, const char *conf, unsigned flags, char **out);
/* inspect_mail(); with `bring` an agent that records nothing is brought in when there is none. -EINTR: Ctrl-C came
 * meanwhile. */
int target_ask(int pid, int kind, const char *request, double timeout, int bring, char **out);
/* Prints an evaluation's answer: output, then value on stdout; traceback on stderr. TOOL_OK, or TOOL_PARTIAL. */
int target_show(const char *answer);

/* Ctrl-C as above, from now on. before_exit (async-signal-safe; may be NULL) is called where it makes the program leave. */
void target_catch_interrupt(void (*before_exit)(void));
/* With each of them `also` (async-signal-safe) is called too: what runs in this program stops by it. */
void target_on_interrupt(void (*also)(void));
/* Whether there was a Ctrl-C since the last call; it is for nothing that is asked from now on. */
int target_interrupted(void);
/* How many there were since that call; they stay. */
int target_interrupts(void);
/* poll(); -errno. A Ctrl-C that came before, and was not asked for, ends it as one that comes meanwhile does: -EINTR. */
int target_wait(struct pollfd *fds, unsigned long n, int ms);

/* The word of `probing -t PID WORD ...`, "" when there is none. */
const char *target_word(int argc, char **argv);
/* A process id from the command line: 0, or the exit code (said). */
int target_pid(const char *text, int *pid);

/* One each for a word; argv as main() got it, `-t PID` in it. */
int cmd_eval(int argc, char **argv);
int cmd_repl(int argc, char **argv);
int cmd_watch(int argc, char **argv);
int cmd_config(int argc, char **argv);

#endif
