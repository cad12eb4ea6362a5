/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_abi.h - the structs of the Arrow C data and stream interfaces, as their specification lays them out
 * (arrow.apache.org/docs/format/CDataInterface.html). Plain structs: no library is needed to fill them in, and any that
 * knows Arrow takes them as they are.
 *
 * Ownership: whoever holds a struct calls its `release` exactly once; a NULL `release` means that it was released already, or moved to
 * another owner.
 */
#ifndef PROBING_CONVERTER_ARROW_ABI_H
#define PROBING_CONVERTER_ARROW_ABI_H

#include <stdint.h>

#define ARROW_FLAG_NULLABLE 2

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

#endif
