/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repl.h - a Python prompt inside a live process, local or remote. Each input goes to the agent, which says whether it is complete and
 * keeps the namespace (agent/python/eval.py, sessions). The caller provides the way to the agent: a mailbox (cmd_repl.c), or a server
 * (remote/main.c).
 *
 *     struct repl_way way = {ask, arg, "process 7; Ctrl-D ends"};
 *     return repl_run(&way);
 */
#ifndef PROBING_TOOLS_REPL_H
#define PROBING_TOOLS_REPL_H

struct repl_way {
    /* word: input, eval, complete, end (eval.py). *out: the answer, a JSON object, or one line on why there is none; malloc'ed. Returns 0
     * or -errno; the prompt continues after -EBUSY, -EMSGSIZE, -EINTR and -ECANCELED. Ctrl-C is caught (target_on_interrupt()). */
    int (*ask)(void *arg, const char *word, const char *session, const char *text, double timeout,
               char **out);
    void *arg;
    const char *who; /* the text that the prompt begins with */
};

/* Returns the exit code; errors were printed. */
int repl_run(const struct repl_way *way);
/* Parses the options of `probing repl`. Returns TOOL_OK, or the exit code. *frame is left unchanged when no frame is given. */
int repl_frame(int argc, char **argv, int *pid, int *frame);

#endif
