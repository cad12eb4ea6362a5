/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dict.h - the dictionaries of one epoch of a trace: strings, frames, stacks, modules by id.
 *
 *     struct epochs *es = epochs_new(reader);
 *     const struct dict *d = epochs_get(es, block->epoch);    // NULL: no memory
 *     const struct dict_stack *st = dict_stack(d, id);       // NULL: not in the trace
 *     epochs_free(es);
 *
 * An epoch is read when it is first asked for, and only the two most recently used are kept (one, if it is larger than DICT_LARGE), so
 * memory does not grow with the length of the trace. Pointers into a dictionary are valid until epochs_get() is called for another epoch. A
 * dictionary is cut off when it takes DICT_MAX bytes of memory. Not thread-safe.
 */
#ifndef PROBING_CONVERTER_DICT_H
#define PROBING_CONVERTER_DICT_H

#include "reader.h"

#define DICT_MAX     (72u << 20)
#define DICT_LARGE   (8u << 20)
#define DICT_WAITING (4u << 20)
/* maximum bytes of a name; longer ones are cut, because each is stored many times */
#define DICT_STRING 4096

struct epochs;
struct dict;

struct dict_frame {
    uint64_t name, file; /* string ids */
    uint64_t firstline, line;
};

struct dict_stack {
    uint64_t flags;
    struct trace_value python, native; /* lists: walk a copy of them with trace_list_next() */
};

struct dict_module {
    uint64_t path; /* string id */
    const uint8_t *build_id;
    uint32_t build_id_len;
    uint64_t start, end, bias, ts;
};

struct dict_native_file {
    uint64_t path; /* string id */
    const uint8_t *build_id;
    uint32_t build_id_len;
};

/* r is borrowed until epochs_free(). Returns NULL when there is no memory. */
struct epochs *epochs_new(struct reader *r);
/*
 * Call before any dictionary is read: frames, stacks and modules, which make up most of a dictionary, are not wanted and count as missing,
 * and a dictionary is read only as far as needed for the strings that are asked for. When there is no memory for that, the string is
 * missing and the next epochs_get() returns NULL.
 */
void epochs_without_stacks(struct epochs *es);
/* Call before the first epochs_get(): nobody will ask for modules or for files of native code. */
void epochs_without_modules(struct epochs *es);
int epochs_have_stacks(const struct epochs *es);
/*
 * After epochs_without_stacks(): epochs_save() returns the strings that were asked for, malloc'ed, of *n bytes; NULL: no memory. Give them
 * to epochs_give(), before the first dictionary is read, when the same trace is read again: then none of these strings is read again.
 * epochs_give() borrows them, and ignores what makes no sense.
 */
void *epochs_save(const struct epochs *es, size_t *n);
void epochs_give(struct epochs *es, const void *saved, size_t n);
/*
 * Without epochs_without_stacks(): epochs_keep() likewise returns the dictionary of the last epoch as it was read. It serves a caller who
 * knows that the first reader_blocks() blocks are still the same (reader_digest()): none of these is decoded again. NULL: it is not worth
 * it, or most of it was taken from an earlier one, or there is no memory. epochs_take() borrows it, and ignores one that is damaged or was
 * written for other records.
 */
void *epochs_keep(const struct epochs *es, size_t *n);
void epochs_take(struct epochs *es, const void *kept, size_t n);
void epochs_free(struct epochs *es);
/* Returns the dictionary of an epoch, owned by `es`; it is empty when the trace has no such epoch. NULL: no memory. */
const struct dict *epochs_get(struct epochs *es, uint32_t epoch);
/* For a trace that will not be used for a while: frees dictionaries of more than DICT_WAITING bytes; they are read again when needed. */
void epochs_trim(struct epochs *es);
/* Enumerates in ascending order the epochs that have dictionaries: i = 0 ...; returns 0 after the last one. */
int epochs_at(const struct epochs *es, size_t i, uint32_t *epoch);

/* Returns the bytes of a string; "" with *n 0 for id 0 and for a string that is missing. */
const char *dict_string(const struct dict *d, uint64_t id, size_t *n);
const struct dict_frame *dict_frame(const struct dict *d, uint64_t id);
const struct dict_stack *dict_stack(const struct dict *d, uint64_t id);
const struct dict_module *dict_module(const struct dict *d, uint64_t id);
const struct dict_native_file *dict_native_file(const struct dict *d, uint64_t id);
/* Enumerates the modules in the order in which they were written: i = 0 ...; returns NULL after the last one. */
const struct dict_module *dict_module_at(const struct dict *d, size_t i, uint64_t *id);

#endif
