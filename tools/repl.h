/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repl.h - a Python prompt inside a live process, wherever that is. Each input goes to the agent, which says whether it is complete;
 * the namespace is kept there (agent/python/eval.py, sessions). The way to the agent is the caller's: a mailbox (cmd_repl.c), or a
 * server (remote/main.c).
 *
 *     struct repl_way way = {ask, arg, "process 7; Ctrl-D ends"};
 *     return repl_run(&way);
 */
#ifndef PROBING_TOOLS_REPL_H
#define PROBING_TOOLS_REPL_H

struct repl_way {
    /* word: input, eval, complete, end (eval.py); *out: the answer, a JSON object, or one line why there is none; malloc. 0 or
     * -errno: after -EBUSY, -EMSGSIZE, -EINTR and -ECANCELED the prompt goes on. Ctrl-C is caught (target_on_interrupt). */
    int (*ask)(void *arg, const char *word, const char *session, const char *text, double timeout,
               char **out);
    void *arg;
    const char *who; /* what the prompt begins with */
};

/* The exit code, said. */
int repl_run(const struct repl_way *way);
/* The options of `probing repl`; TOOL_OK, or the exit code. *frame stays what it is where there is none. */
int repl_frame(int argc, char **argv, int *pid, int *frame);

#endif
