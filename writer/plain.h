/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain.h - the drain's short way for the records that come by the thousand: those of numbers and keys alone
 * (samples), several of one type in a row, from the ring's words to rows without a step in between.
 *
 *     n = plain_take(&cursor, limit, block, BLOCK_LARGE, &dicts);   // n records are in the block, the cursor behind them
 *     rec = ring_next(&cursor);                                     // what it did not take: the long way
 *
 * It takes only what needs no decision: records as our own version writes them, whose type is in the block already,
 * whose keys are all known. Anything else, and what is damaged, it leaves to the long way (encode_record), whose rows are
 * the same bytes. One thread at a time, no memory, no errors.
 */
#ifndef PROBING_WRITER_PLAIN_H
#define PROBING_WRITER_PLAIN_H

#include "encode.h"
#include "ring.h"

/* Ends before the ring position `limit`, or when the block is `large` bytes long: one row may have passed that.
 * blocks: by kind. `d`: of the epoch that the blocks belong to. */
uint64_t plain_take(struct ring_cursor *c, uint64_t limit, struct builder *blocks, size_t large,
                    const struct dicts *d);

#endif
