/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records.h - records.def as C: record ids, field numbers, and a table to walk.
 *
 *     const struct trace_record *r = trace_record_by_id(TRACE_sample);
 *     for (unsigned i = 0; i < r->nfields; i++) r->fields[i].name, .type, .ref ...
 *
 * TRACE_sample is a record id (16); SAMPLE-like field numbers are TRACE_sample_ts (0),
 * TRACE_sample_tid (1), ...; TRACE_LOST_ring_full (0) is an index into lost[].
 * Everything here is constant data: any thread, any signal context.
 */
#ifndef PROBING_TRACES_RECORDS_H
#define PROBING_TRACES_RECORDS_H

#include <stddef.h>
#include <stdint.h>

enum trace_record_id {
    TRACE_NONE = 0,
#define RECORD(name, id, kind, doc) TRACE_##name = id,
#include "records.def"
};

enum trace_kind { TRACE_KIND_META, TRACE_KIND_DICT, TRACE_KIND_DATA };

enum trace_type {
    TRACE_U,
    TRACE_S,
    TRACE_D,
    TRACE_T,
    TRACE_TUS,
    TRACE_F,
    TRACE_ID,
    TRACE_KEY,
    TRACE_STR,
    TRACE_TXT,
    TRACE_BIN,
    TRACE_REF,
    TRACE_REFS,
    TRACE_US,
};

/* Field numbers: TRACE_sample_ts = 0, TRACE_sample_tid = 1, ..., TRACE_sample_NFIELDS. */
#define RECORD(name, id, kind, doc)        enum trace_fields_of_##name {
#define FIELD(name, field, type, ref, doc) TRACE_##name##_##field,
#define END(name)                                                                                  \
    TRACE_##name##_NFIELDS                                                                         \
    }                                                                                              \
    ;
#include "records.def"

enum trace_lost {
#define LOST(name, index, doc) TRACE_LOST_##name = index,
#include "records.def"
    TRACE_NLOST = 8
};

#define TRACE_MAX_ID     63 /* record ids are 1..63: a block's `types` mask has a bit for each */
#define TRACE_MAX_FIELDS 32

struct trace_field {
    const char *name;
    const char *doc;
    enum trace_type type;
    uint8_t ref; /* record id of the dictionary a REF or REFS points to, else 0 */
};

struct trace_record {
    const char *name;
    const char *doc;
    enum trace_kind kind;
    uint8_t id;
    uint8_t nfields;
    uint32_t vars, refs; /* bit i: field i is bytes or a list; field i refers to a dictionary */
    struct trace_field fields[TRACE_MAX_FIELDS];
};

/* The record type with this id, or NULL. */
const struct trace_record *trace_record_by_id(unsigned id);
/* The record type with this name, or NULL. */
const struct trace_record *trace_record_by_name(const char *name);
/* Name and one-line description of a loss reason (0..TRACE_NLOST-1); "" when unused. */
const char *trace_lost_name(unsigned index);
const char *trace_lost_doc(unsigned index);
/* The table's text form as stored in block 0 (static storage). One line per record:
 *   16 sample DATA ts:TUS tid:D stack:REF>stack ... */
const char *trace_schema_text(void);

/* True for lists of 64-bit numbers. */
static inline int trace_type_is_list(enum trace_type t) {
    return t == TRACE_REFS || t == TRACE_US;
}
/* True for fields whose value is bytes or a list rather than one number. */
#define TRACE_VAR_TYPES                                                                            \
    (1u << TRACE_STR | 1u << TRACE_TXT | 1u << TRACE_BIN | 1u << TRACE_REFS | 1u << TRACE_US)
static inline int trace_type_is_var(enum trace_type t) {
    return TRACE_VAR_TYPES >> t & 1;
}

/* For each bit of a mask, the lowest first: TRACE_EACH(i, rec->refs) ... field i ... */
#define TRACE_EACH(i, mask)                                                                        \
    for (uint32_t bits_ = (mask), i; bits_ && (i = (uint32_t)__builtin_ctz(bits_), 1);             \
         bits_ &= bits_ - 1)

#endif
