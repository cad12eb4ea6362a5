/* SPDX-License-Identifier: Apache-2.0 */
#include "records.h"

#include <string.h>

/*
 * The table is indexed by id. Two records with one id would be a repeated designated initializer,
 * which -Wextra -Werror refuses; an id above TRACE_MAX_ID is an array index out of bounds.
 */
/* clang-format off */
#define RECORD(name, id, kind, doc)        enum { VARS_##name = 0u
#define FIELD(name, field, type, ref, doc) | (TRACE_VAR_TYPES >> TRACE_##type & 1) << TRACE_##name##_##field
#define END(name)                          };
#include "records.def"
#define RECORD(name, id, kind, doc)        enum { REFS_##name = 0u
#define FIELD(name, field, type, ref, doc) | (TRACE_##ref ? 1u : 0u) << TRACE_##name##_##field
#define END(name)                          };
#include "records.def"

static const struct trace_record records[TRACE_MAX_ID + 1] = {
#define RECORD(rname, rid, rkind, rdoc)                                    \
    [rid] = {.name = #rname, .doc = rdoc, .kind = TRACE_KIND_##rkind,      \
             .id = rid, .nfields = TRACE_##rname##_NFIELDS,                \
             .vars = VARS_##rname, .refs = REFS_##rname, .fields = {
#define FIELD(rname, field, ftype, fref, fdoc)                             \
    {.name = #field, .doc = fdoc, .type = TRACE_##ftype, .ref = TRACE_##fref},
#define END(name) }},
#include "records.def"
};

static const char *const lost_names[TRACE_NLOST] = {
#define LOST(name, index, doc) [index] = #name,
#include "records.def"
};

static const char *const lost_docs[TRACE_NLOST] = {
#define LOST(name, index, doc) [index] = doc,
#include "records.def"
};

/* ">stack" for a REF to stack, "" for NONE: IS_NONE_NONE puts "" in the second place. */
#define IS_NONE_NONE         ~, ""
#define SECOND_(a, b, ...)   b
#define SECOND(...)          SECOND_(__VA_ARGS__, ~)
#define REF_TEXT(ref, text)  SECOND(IS_NONE_##ref, text)
static const char schema_text[] =
#define RECORD(name, id, kind, doc)        #id " " #name " " #kind
#define FIELD(name, field, type, ref, doc) " " #field ":" #type REF_TEXT(ref, ">" #ref)
#define END(name)                          "\n"
#include "records.def"
;
/* clang-format on */

const struct trace_record *trace_record_by_id(unsigned id) {
    return id <= TRACE_MAX_ID && records[id].name ? &records[id] : NULL;
}

const struct trace_record *trace_record_by_name(const char *name) {
    for (unsigned id = 0; id <= TRACE_MAX_ID; id++)
        if (records[id].name && strcmp(records[id].name, name) == 0)
            return &records[id];
    return NULL;
}

const char *trace_lost_name(unsigned index) {
    return index < TRACE_NLOST && lost_names[index] ? lost_names[index] : "";
}

const char *trace_lost_doc(unsigned index) {
    return index < TRACE_NLOST && lost_docs[index] ? lost_docs[index] : "";
}

const char *trace_schema_text(void) {
    return schema_text;
}
