/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_node.h - autograd's nodes as they begin, seen where the engine calls them and not by a callback of RecordFunction.
 *
 * A callback costs each node its RecordFunction and its name, made of a demangled type: 1 to 2 us. The engine calls
 * Engine::evaluate_function(node) through libtorch_cpu's table of imported functions, and a node that is really executed asks
 * getStepCallbacksUnlessEmpty(BACKWARD) through the same table. Our functions in these two entries pass the node on to
 * torch_back.c: a few ns, no lock, nothing allocated.
 *
 * The offsets of the sequence number and the thread in a node are verified, not assumed: at first the callback is installed as
 * well and reports both for the same node. Once NODES_PROOF nodes agree, the callback is removed (nodes_proven); at the first
 * that disagrees, our entries are.
 *
 *     nodes_hook();                        // recording of backward begins: service thread
 *     nodes_agree(l, sequence, thread);    // in the callback
 *     nodes_unhook();
 */
#ifndef PROBING_AGENT_TORCH_NODE_H
#define PROBING_AGENT_TORCH_NODE_H

#include <stdint.h>

struct torch_thread;

#define NODES_PROOF 64u

/* Once torch_lib is loaded. 0; -ENOTSUP: this library has no such places, or somebody else is there. Service thread. */
int nodes_hook(void);
/* The places are as they were. Service thread. */
void nodes_unhook(void);
/* 1: nodes are told by these places alone; 0: a callback has to. Any thread. */
int nodes_proven(void);
/* 1: this PyTorch's nodes are not as expected. For ever. Any thread. */
int nodes_refuted(void);
/* 1: also of the node that begins on this thread only the callback can say what it is, as before nodes_proven(). */
int nodes_asks(const struct torch_thread *l);
/* What the callback says of the node that begins on this thread. Any thread. */
void nodes_agree(struct torch_thread *l, uint64_t sequence, uint64_t thread);

#endif
