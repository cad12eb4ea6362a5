/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_read.h - reads records of torch's calls and names, block by block. Calls are read twice (load_torch.h): their records are kept, so that the
 * second reading need not decompress the blocks again.
 *
 *     struct torch_read t = {.reader = reader};
 *     struct trace_rows rows;
 *     for (size_t i = 0; i < reader_blocks(reader); i++)
 *         if (torch_read_block(&t, i, TRACE_torch_calls, &rows) == 0)
 *             while (trace_rows_next(&rows, 1ull << TRACE_torch_calls, v) > 0) ...
 *     torch_read_free(&t);
 */
#ifndef PROBING_CONVERTER_TORCH_READ_H
#define PROBING_CONVERTER_TORCH_READ_H

#include "reader.h"
#include "strips.h"

struct torch_read {
    struct reader *reader;
    struct reader_data data; /* private, as what follows */
    struct strips calls;
};

/* Begins the rows of block i, which are valid until the next call. Returns 0; -ENOENT: it has none of that record type; another -errno: it cannot
 * be read. */
int torch_read_block(struct torch_read *t, size_t i, int record, struct trace_rows *rows);
void torch_read_free(struct torch_read *t);

#endif
