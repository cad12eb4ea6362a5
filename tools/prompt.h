/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prompt.h - reads lines from a person at a terminal, with editing, history and completion (libedit), or from a pipe.
 *
 *     struct prompt *p;
 *     prompt_open(&p, "greeting", ".history", complete, arg);
 *     while (prompt_line(p, ">>> ", 0, &line) == 0) ...
 *     prompt_close(p);
 *
 * At the prompt, Ctrl-C is read as a key, so that it drops exactly what was typed before it and nothing that was typed after it, however
 * late this program gets to run. Between two lines it is a signal, which also drops what was typed ahead. A SIGINT from another process
 * (kill -INT) ends prompt_line() whenever it arrives, also when it arrived after the previous line and nobody has called
 * prompt_interrupted() since. One prompt in a program; single-threaded. The caller must have called target_catch_interrupt(prompt_restore)
 * (target.h): the prompt does not catch the signal itself, but calls target_interrupted().
 */
#ifndef PROBING_TOOLS_PROMPT_H
#define PROBING_TOOLS_PROMPT_H

struct prompt;

/* Calls each(to, name) for every name that the end of `text` (the line up to the cursor) can be completed to; returns how many. A name must
 * begin with the text's last word, dots included. */
typedef int prompt_complete(void *arg, const char *text, int (*each)(void *to, const char *name),
                            void *to);

/* `greeting` is printed on stderr when there is a terminal. `complete` may be NULL. Earlier lines are stored in the file `history` in the
 * home directory (or in the file named by PROBING_HISTORY). Returns 0 or -errno. */
int prompt_open(struct prompt **out, const char *greeting, const char *history,
                prompt_complete *complete, void *arg);
void prompt_close(struct prompt *p);
/* Returns 1 when input and output are a terminal. */
int prompt_interactive(const struct prompt *p);
/* Reads the next line, without its newline, valid until the next call. Returns 0; -ENODATA at the end; -EINTR after Ctrl-C. further: the
 * line continues the previous one, and the history gives both back together, with a newline between them. */
int prompt_line(struct prompt *p, const char *prompt, int further, const char **line);
/* Returns 1 when there was a Ctrl-C since the last line. */
int prompt_interrupted(struct prompt *p);
/* Restores the terminal to its state before the prompt, for a program that exits without prompt_close(). Async-signal-safe. */
void prompt_restore(void);

#endif
