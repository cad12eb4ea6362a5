/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_slot.h - forward: the slot tp_call of nn.Module and its subclasses, replaced by a C function.
 *
 *     slots_install(why, n);     // GIL held; 0, -EAGAIN nn.Module is not there yet, or -errno and why
 *     slots_remove();            // GIL held: puts back what is still ours
 *
 * Dynamo never runs the slot, so it compiles as without us. A class made later gets the slot by nn.Module.__init_subclass__ (a C
 * function that goes on to the next one in the order of resolution), and by a rescan now and then for those that
 * change __call__ or keep __init_subclass__ to themselves.
 *
 * And the whole backward pass: the engine's run_backward, by the pointer in its method definition.
 */
#ifndef PROBING_AGENT_TORCH_SLOT_H
#define PROBING_AGENT_TORCH_SLOT_H

#include <stddef.h>

int slots_install(char *why, size_t n);
void slots_remove(void);
/* Somebody assigned nn.Module.__call__ (torch.fx does while it traces a graph, so torch.compile does): that fills in
 * the slot of every class anew. One load; any thread. */
int slots_lost(void);
/* Puts them in place again, but not within a module's call: the next time then. GIL held. */
void slots_again(void);
/* How many classes carry our slot. */
unsigned slots_count(void);

#endif
