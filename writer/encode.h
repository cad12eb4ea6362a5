/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode.h - turns records into rows: builds one block, and replaces keys by ids.
 *
 *     builder_init(&b, TRACE_KIND_DATA);
 *     builder_row(&b, rec, v);                 // v holds ids now, differences are made here
 *     n = builder_finish(&b, seq, epoch, lost, &hint);  // header in place; b.buf, n bytes
 *     builder_reset(&b);
 *
 *     encode_record(&e, &dicts, rec, v)        // v holds keys and texts: resolves, then builder_row()
 *
 * Knows no files and no rings. Errors leave the block as it was. One thread at a time.
 */
#ifndef PROBING_WRITER_ENCODE_H
#define PROBING_WRITER_ENCODE_H

#include "../traces/block.h"
#include "intern.h"
#include "ring.h"

#define NKINDS 3 /* META, DICT, DATA: enum trace_kind, which is also the order of writing */

struct builder {
    uint8_t kind;
    uint8_t *buf; /* room for the header (TRACE_BLOCK_HEADER bytes), then rows; malloc */
    size_t len, cap;
    uint32_t count;
    uint64_t types;
    uint64_t first_ts, last_ts; /* earliest and latest time; first_ts UINT64_MAX: none yet */
    /* The first time of each type is a difference from the block's earliest time, which is only known at the end. So
     * builder_row() writes it as a varint of full length, and builder_finish() fills it in. */
    struct {
        uint32_t off; /* position in buf; 0: this type has had no time yet */
        uint8_t micro;
        uint64_t value; /* in us when micro */
    } first[TRACE_MAX_ID + 1];
    uint64_t prev[TRACE_MAX_ID + 1][TRACE_MAX_FIELDS]; /* by type and field (times: PREV_TIME) */
};

void builder_init(struct builder *b, enum trace_kind kind);
void builder_free(struct builder *b);
/* Empties the builder for the next block; the memory is kept. */
void builder_reset(struct builder *b);
/* Appends a row: REF, STR and ID fields are ids in u, REFS fields are lists of ids. Returns 0,
 * -ENOMEM, or -EFBIG when the block would become longer than TRACE_BLOCK_MAX. */
int builder_row(struct builder *b, const struct trace_record *rec, const struct writer_value *v);
/* Writes the header and fills in the hint except for the compressed size. Returns the uncompressed length. */
size_t builder_finish(struct builder *b, uint32_t seq, uint32_t epoch,
                      const uint64_t lost[TRACE_NLOST], struct trace_hint *hint);

struct encoder {
    struct builder block[NKINDS];
    uint64_t *ids; /* scratch for the ids of a REFS list; malloc */
    size_t nids;
};

void encoder_init(struct encoder *e);
void encoder_free(struct encoder *e);
/*
 * Resolves the keys of a record in `d`, interns its strings (whose definitions go into the DICT block), gives a definition its id, and
 * appends the row to the block of its kind. Overwrites `v`: ids replace keys, except after -ENOENT. Returns 0, also when the definition was
 * known already; -ENOENT when a key is not defined in d and nothing was changed; -ENOMEM; -EFBIG; -EBADMSG for a definition without a key.
 */
int encode_record(struct encoder *e, struct dicts *d, const struct trace_record *rec,
                  struct writer_value *v);

#endif
