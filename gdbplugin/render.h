/* SPDX-License-Identifier: Apache-2.0 */
/* render.h - the forms that stacks.h's render() writes; private to render*.c. */
#ifndef PROBING_INSPECT_RENDER_H
#define PROBING_INSPECT_RENDER_H

#include "stacks.h"
#include "text.h"

void render_json(struct text *t, const struct stacks *st, unsigned flags);
void render_folded(struct text *t, const struct stacks *st);
const char *render_state(const struct stack_thread *t);
int render_shown(const struct stack_thread *v, unsigned flags);

#endif
