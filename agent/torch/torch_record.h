/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_record.h - finds the offsets of fields of an at::RecordFunction that we read and for which PyTorch exports no function.
 *
 *     struct torch_record at;
 *     if (!torch_record_find(&at, why, sizeof why)) memcpy(&sequence, rf + at.sequence, 8);
 *
 * Nothing is assumed about a version: two RecordFunctions are constructed in memory of ours, with a scope that no other callback of
 * the process listens to, and then searched for contents that are known:
 * - sequence_nr_: a number that we passed and that appears nowhere else.
 * - fwd_thread_id_: cannot be set from outside, so the fields behind it identify it. In all versions seen (1.13 to 2.14,
 *   ATen/record_function.h) it is followed by handle_, is_async_ and debug_handle_:
 *
 *       fwd_thread_id_ (8)  handle_ (8)  is_async_ (1, and 7 unused)  debug_handle_ (8)
 *
 *   is_async_ is the one byte that RecordFunction::_setAsync() changes; handle_ must be larger in the second RecordFunction than
 *   in the first, debug_handle_ -1, and fwd_thread_id_, which was 0x..a5 before the constructor ran, 0 after it.
 */
#ifndef PROBING_AGENT_TORCH_RECORD_H
#define PROBING_AGENT_TORCH_RECORD_H

#include <stddef.h>

struct torch_record {
    unsigned sequence, thread; /* offsets of sequence_nr_ and fwd_thread_id_; 0: not found */
};

/* Service thread, once torch_lib is loaded. Returns 0, or -ENOTSUP with a reason in `why`. */
int torch_record_find(struct torch_record *at, char *why, size_t n);

#endif
