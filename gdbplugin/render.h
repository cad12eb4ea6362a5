/* SPDX-License-Identifier: Apache-2.0 */
/* render.h - the forms that stacks.h's render() writes; private to render*.c. */
#ifndef PROBING_INSPECT_RENDER_H
#define PROBING_INSPECT_RENDER_H

#include "native.h"
#include "stacks.h"
#include "text.h"

void render_json(struct text *t, const struct stacks *st, unsigned flags);
void render_folded(struct text *t, const struct stacks *st);
const char *render_state(const struct stack_thread *t);
/* A native frame's function as people read it, or its address: malloc()ed, NULL without memory. The rest is in *name. */
char *render_name(const struct stacks *st, const struct stack_frame *f, struct native_name *name);
int render_shown(const struct stack_thread *v, unsigned flags);

#endif
