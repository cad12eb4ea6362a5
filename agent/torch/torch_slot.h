/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_slot.h - records forward calls: the slot tp_call of nn.Module and its subclasses is replaced by a C function.
 *
 *     slots_install(why, n);     // GIL held; 0, -EAGAIN nn.Module is not there yet, or -errno and why
 *     slots_remove();            // GIL held: puts back what is still ours
 *
 * Dynamo never runs the slot, so it compiles as it would without us. A class created later gets our slot by nn.Module.__init_subclass__ (a C
 * function that also calls the next one in the method resolution order); a rescan now and then, and after a new class, finds classes that change __call__ or
 * whose own __init_subclass__ does not call ours (where the program has given nn.Module one of its own, there is only that).
 *
 * Whole backward passes are recorded as well: the engine's run_backward is replaced, by the pointer in its method definition.
 */
#ifndef PROBING_AGENT_TORCH_SLOT_H
#define PROBING_AGENT_TORCH_SLOT_H

#include <stddef.h>

int slots_install(char *why, size_t n);
void slots_remove(void);
/* Whether nn.Module.__call__ has been assigned (torch.fx does so while it traces a graph, and so does torch.compile): that fills
 * in the slot of every class again. One load; any thread. */
int slots_lost(void);
/* Puts our slots in place again, unless this thread is within a module's call: then the next time. GIL held. */
void slots_again(void);
/* How many classes carry our slot. */
unsigned slots_count(void);

#endif
