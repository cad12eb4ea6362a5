/* SPDX-License-Identifier: Apache-2.0 */
#include "torch_read.h"

#include <errno.h>

int torch_read_block(struct torch_read *t, size_t i, int record, struct trace_rows *rows) {
    const uint64_t type = 1ull << record;
    struct trace_block_header h;
    const uint8_t *kept;
    int err = 0;

    if (record == TRACE_torch_calls && strips_rows(&t->calls, i, &h, &kept)) {
        trace_rows_start(rows, &h, kept);
        return 0;
    }
    if (!reader_may_hold(t->reader, i, type))
        return -ENOENT;
    if ((err = reader_load(t->reader, i, &t->data)) != 0)
        return err;
    trace_rows_start(rows, &t->data.h, t->data.data);
    return record == TRACE_torch_calls ? strips_take(&t->calls, i, &t->data.h, t->data.data, type)
                                       : 0;
}

void torch_read_free(struct torch_read *t) {
    strips_free(&t->calls);
    reader_data_free(&t->data);
}
