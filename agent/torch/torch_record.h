/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_record.h - where the fields of an at::RecordFunction lie that we read and for which PyTorch exports no function.
 *
 *     struct torch_record at;
 *     if (!torch_record_find(&at, why, sizeof why)) memcpy(&sequence, rf + at.sequence, 8);
 *
 * Nothing is assumed of a version: two RecordFunctions are made in memory of ours, with a scope that no other callback of the
 * process sees, and what is known of their contents is searched for:
 * - sequence_nr_: a number that we gave and nothing else has.
 * - fwd_thread_id_: cannot be set from outside, so its neighbours prove it. In all versions seen (1.13 to 2.14,
 *   ATen/record_function.h) the class goes on with handle_, is_async_ and debug_handle_:
 *
 *       fwd_thread_id_ (8)  handle_ (8)  is_async_ (1, and 7 unused)  debug_handle_ (8)
 *
 *   is_async_ is the one byte that RecordFunction::_setAsync() changes; before it a number that is larger in the
 *   second RecordFunction than in the first, behind it -1, and fwd_thread_id_ was 0x..a5 before the constructor and is 0 after it.
 */
#ifndef PROBING_AGENT_TORCH_RECORD_H
#define PROBING_AGENT_TORCH_RECORD_H

#include <stddef.h>

struct torch_record {
    unsigned sequence; /* bytes from the start of a RecordFunction; 0: not found */
    unsigned thread;   /* of fwd_thread_id_, likewise */
};

/* Service thread, once torch_lib is loaded. 0, with at->thread 0 and the reason in why (else empty) where only the forward thread was not found;
 * -ENOTSUP and why. */
int torch_record_find(struct torch_record *at, char *why, size_t n);

#endif
