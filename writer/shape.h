/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape.h - which fields of each record type need more than a number written: bit i is field i.
 *
 *     for (uint32_t m = shape_of(type).refs; m; m &= m - 1)
 *         v[__builtin_ctz(m)] ...
 *
 * Constant tables made from records.def: most records have few such fields, so walking masks costs
 * the encoder less than looking at every field's type.
 */
#ifndef PROBING_WRITER_SHAPE_H
#define PROBING_WRITER_SHAPE_H

#include <stdint.h>

#include "../traces/records.h"

/* clang-format off */
struct shape {
    uint32_t vars;  /* STR, TXT, BIN, REFS, US: all that has bytes in a raw record */
    uint32_t refs;  /* REF */
    uint32_t lists; /* REFS */
    uint32_t strs;  /* STR */
};

/* A record's four masks side by side in 128 bits, 32 fields each: OR-ed together field by field. */
#define SHAPE_IS(type, a)  ((__uint128_t)(TRACE_##type == TRACE_##a))
#define SHAPE_BIT(type) \
    (SHAPE_IS(type, STR) | SHAPE_IS(type, TXT) | SHAPE_IS(type, BIN) | SHAPE_IS(type, REFS) | SHAPE_IS(type, US) | \
     SHAPE_IS(type, REF) << 32 | SHAPE_IS(type, REFS) << 64 | SHAPE_IS(type, STR) << 96)
static const __uint128_t shapes[TRACE_MAX_ID + 1] = {
#define RECORD(name, id, kind, doc)        [id] = 0
#define FIELD(name, field, type, ref, doc) | SHAPE_BIT(type) << TRACE_##name##_##field
#define END(name)                          ,
#include "../traces/records.def"
};

static inline struct shape shape_of(unsigned type)
{
    __uint128_t s = shapes[type];
    return (struct shape){(uint32_t)s, (uint32_t)(s >> 32), (uint32_t)(s >> 64), (uint32_t)(s >> 96)};
}
/* clang-format on */

#endif
