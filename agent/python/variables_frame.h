/* SPDX-License-Identifier: Apache-2.0 */
/*
 * variables_frame.h - reads one local variable of one function, in place, from a frame.
 *
 *     variable_init(&v, "self.loss", "Trainer.fit");
 *     if (variable_is_of(&v, code)) value = variable_read(&v, frame, code);    // new reference; NULL: none, or an error is set
 *
 * 3.12 and later have PyFrame_GetVar; before, the variable's slot in the frame is read: its offset comes from the headers of those
 * versions, which change no more. With the GIL; a frame passed in must belong to the calling thread and be running.
 */
#ifndef PROBING_AGENT_VARIABLES_FRAME_H
#define PROBING_AGENT_VARIABLES_FRAME_H

#include <sys/types.h>

#define VARIABLE_PATH 8 /* names in self.a.b */

struct variable {
    void *func;                /* str */
    void *path[VARIABLE_PATH]; /* str: the variable, then attributes */
    unsigned n;
    int is_module; /* the function is <module>: its variables are globals */
    void *code;    /* the code object that was found last */
    ssize_t slot;  /* index of path[0] in its frames, before 3.12; -1: it has no such variable */
    int in_cell;
};

/* 0, or -1 with a Python error set. */
int variable_init(struct variable *v, const char *name, const char *func);
void variable_free(struct variable *v);
/* Whether this code object is the function's. Clears errors. */
int variable_is_of(const struct variable *v, void *code);
/* Whether the function has such a variable. */
int variable_in(const struct variable *v, void *code);
/* Remembers the code object. Returns 1 if it is another one than before. */
int variable_found(struct variable *v, void *code);
/* Calls assigned_after() of values.py, or, with a result of that, assigned_by_now(). Returns 0 on an error. */
long variable_assigned(const struct variable *v, void *frame, void *then);
void *variable_read(struct variable *v, void *frame, void *code);

/* A frame's code object, and, in exchange for the frame, its caller's frame: new references, NULL without an error. */
void *variable_code(void *frame);
void *variable_back(void *frame);

#endif
