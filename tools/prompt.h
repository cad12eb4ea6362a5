/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prompt.h - lines from a person at a terminal, with editing, history and completion (libedit), or from a pipe.
 *
 *     struct prompt *p;
 *     prompt_open(&p, "greeting", ".history", complete, arg);
 *     while (prompt_line(p, ">>> ", 0, &line) == 0) ...
 *     prompt_close(p);
 *
 * Ctrl-C at the prompt is a key like others, so that it drops what was typed before it and nothing that was typed after it, however
 * late this program gets to run. Between two lines it is the signal, which also drops what was typed ahead. A SIGINT that is sent
 * (kill -INT) ends prompt_line(), whenever it comes: also one since the line before, that nobody asked prompt_interrupted() about.
 * One prompt in a program; single-threaded. The caller has called target_catch_interrupt(prompt_restore) (target.h): the prompt asks
 * target_interrupted() whether there was a signal, and does not catch it itself.
 */
#ifndef PROBING_TOOLS_PROMPT_H
#define PROBING_TOOLS_PROMPT_H

struct prompt;

/* Calls each(to, name) for every name that the end of `text` (the line up to the cursor) can become; returns how many. A name
 * begins like the text's last word, dots included. */
typedef int prompt_complete(void *arg, const char *text, int (*each)(void *to, const char *name),
                            void *to);

/* `greeting` goes to stderr when there is a terminal. `complete` may be NULL. Earlier lines are kept in `history` in the home
 * directory (PROBING_HISTORY names another file). 0 or -errno. */
int prompt_open(struct prompt **out, const char *greeting, const char *history,
                prompt_complete *complete, void *arg);
void prompt_close(struct prompt *p);
/* Whether a person is there: input and output are a terminal. */
int prompt_interactive(const struct prompt *p);
/* The next line, without its newline, valid until the next call. 0; -ENODATA at the end; -EINTR after Ctrl-C. further: it goes on with
 * what the line before began, and both come out of the history together, with a newline between. */
int prompt_line(struct prompt *p, const char *prompt, int further, const char **line);
/* Whether there was a Ctrl-C since the last line. */
int prompt_interrupted(struct prompt *p);
/* The terminal as it was before the prompt, for who leaves without prompt_close(). Async-signal-safe. */
void prompt_restore(void);

#endif
