/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_render.h - what the parts of the object renderer share. Private to agent/pywalk (object_*.c, task_*.c).
 *
 *     struct render r;
 *     obj_begin(&r, ob, limits, buf, n);
 *     obj_render(&r, addr);
 *     length = obj_end(&r);
 *
 * A render is one text being written: where to, how much may still be read, and the containers that are open.
 *
 * Read errors are sticky. The first one stays in r->rc, and later reads give 0 without asking the target, until obj_put_error()
 * or obj_error() clears it. So a function reads all that it needs, calls obj_ok() once before it trusts any of it, and may return with an error set:
 * obj_render() writes it out. Once the budget of reads is spent, reads fail with -E2BIG; then, and when the buffer is full, nothing more is written.
 *
 * A new kind of object is a row in object_kind.c.
 */
#ifndef PROBING_PYWALK_OBJECT_RENDER_H
#define PROBING_PYWALK_OBJECT_RENDER_H

#include "mem.h"
#include "object.h"
#include "offsets.h"

#define UNUSED __attribute__((unused)) /* a parameter that the table of kinds demands */

/*
 * Where CPython keeps the contents of its objects, in one version: object_table.inc, which gen_objects.py writes from the headers. Offsets are in bytes from
 * the start of their structure, flag_* and kind_* are masks. 0 means that the version has no such thing (a member that some version lacks is never 0 in the
 * others), except for values_capacity, values_first and values_order. The other fields of str and code objects are in offsets.h.
 */
struct object_fields {
    /* PyObject, PyVarObject, types */
    int64_t ob_size, ob_head; /* (ob_size is first: rows of object_kind.c cannot refer to it) */
    int64_t flag_heap, flag_long, flag_list, flag_tuple, flag_bytes, flag_str, flag_dict;
    int64_t flag_exception, flag_type, flag_managed_dict, flag_inline_values;
    int64_t tp_name, tp_basicsize, tp_itemsize, tp_flags, tp_members, tp_base, tp_dict;
    int64_t tp_dictoffset, ht_qualname, ht_cached_keys;
    int64_t member_size, member_name, member_type, member_offset, member_object; /* __slots__ */
    /* int_size: ob_size, or from 3.12 on a tag with the number of digits, shifted left by int_tag_shift */
    int64_t int_size, int_digits, int_tag_shift, int_digit_bits, int_digit_size;
    int64_t str_wstr, str_wstr_length; /* to 3.11: strings that are not ready yet */
    int64_t float_value, complex_value, list_items, tuple_items, bytearray_start;
    int64_t set_used, set_mask, set_table, set_entry, set_key, set_hash;
    /* dict; its keys (keys_log2: up to 3.10 the size itself) and their two kinds of entries; the values of a split dict, which
     * begin at values_first; their count and order lie around them: see object_dict.c */
    int64_t dict_used, dict_keys, dict_values;
    int64_t keys_log2, keys_log2_bytes, keys_kind, keys_entries, keys_indices, keys_general;
    int64_t entry_unicode, entry_unicode_key, entry_unicode_value;
    int64_t entry_general, entry_general_key, entry_general_value;
    int64_t values_capacity, values_valid, values_first, values_size;
    int64_t values_order, values_order_next;
    /* attributes of an instance: where its dict is, and where its values are (3.11), or what must be added to the dict's word to get there (3.12), or
     * where they are behind the object (3.13) */
    int64_t managed_dict, managed_values, managed_tagged, inline_values;
    int64_t exception_args, cell_value, function_code, function_globals, function_qualname;
    int64_t method_function, method_self, builtin_def, builtin_self, generator_qualname;
    int64_t module_dict, slice_start, range_start;
    /* datetime: date_aware says whether there is a time zone; the numbers follow it */
    int64_t date_aware, date_size, time_zone, time_size, datetime_zone, datetime_size;
    int64_t delta_days, delta_size;
    int64_t co_name, co_flags, co_argcount, co_kwonlyargcount, co_nlocals;
    int64_t flag_optimized, flag_varargs, flag_varkeywords;
    int64_t co_nlocalsplus, co_localsplusnames, co_localspluskinds; /* 3.11+ */
    int64_t kind_local, kind_cell, kind_free;
    int64_t co_varnames, co_cellvars, co_freevars; /* to 3.10 */
    int64_t fr_locals, fr_globals, fr_slots;
    /* 3.13+: indexes of the words of _Py_DebugOffsets that must agree with the fields above */
    int64_t word_tp_name, word_tp_flags, word_tuple_items, word_list_items;
    int64_t word_dict_keys, word_dict_values, word_float_value, word_int_size, word_int_digits;
    int64_t word_argcount, word_localsplusnames, word_localspluskinds, word_slots, words;
};

struct render {
    const struct object_fields *f;
    struct pywalk_mem mem; /* the target's */
    struct pywalk pw;      /* a copy whose reads are counted: for pywalk_str() */
    struct pywalk_limits limit;
    int rc;
    char *buf;
    size_t space, n;
    bool full; /* no space left, or nothing more may be read */
    uint32_t depth;
    uint64_t open[PYWALK_MAX_DEPTH]; /* addresses of the open containers */
    struct object_type *known;       /* a cache of OBJ_KNOWN types, or NULL */
};
#define OBJ_KNOWN 32

/* ---- object_render.c: writing and reading ---- */
void obj_begin(struct render *r, const struct pywalk_objects *ob,
               const struct pywalk_limits *limits, char *buf, size_t n);
/* Begins a render that writes nothing and reads at most `reads` times. */
void obj_begin_reads(struct render *r, const struct pywalk_objects *ob, uint32_t reads);
int obj_end(struct render *r);
void obj_put(struct render *r, const char *s);
void obj_put_bytes(struct render *r, const char *s, size_t n);
void obj_put_format(struct render *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Writes text of the target's; invalid UTF-8 and control characters become ?. */
void obj_put_clean(struct render *r, const char *s);
/* Writes the pending error, if any, as <unreadable at 0xADDR> or <corrupt at 0xADDR>, and clears it. */
void obj_put_error(struct render *r, uint64_t addr);

/* Returns the pending error, or 0, and clears it. */
static inline int obj_error(struct render *r) {
    int rc = r->rc;
    r->rc = 0;
    return rc;
}
static inline void obj_fail(struct render *r, int rc) {
    r->rc = r->rc != 0 ? r->rc : rc;
}
/* Whether all reads have succeeded and what was read makes sense (`sense`); if not, an error is pending. */
static inline bool obj_ok(struct render *r, bool sense) {
    if (!sense)
        obj_fail(r, -EBADMSG);
    return r->rc == 0;
}
bool obj_get(struct render *r, uint64_t addr, void *buf, size_t n);
uint8_t obj_u8(struct render *r, uint64_t addr);
uint32_t obj_u32(struct render *r, uint64_t addr);
uint64_t obj_u64(struct render *r, uint64_t addr);
/* Reads a pointer to an object, or NULL; sets -EBADMSG when it cannot be one. */
uint64_t obj_pointer(struct render *r, uint64_t addr);
/* Reads a count; sets -EBADMSG when it is negative or not below 2^40. */
uint64_t obj_count(struct render *r, uint64_t addr);
/* Reads a str as UTF-8. */
bool obj_text(struct render *r, uint64_t str, char *buf, size_t n);
/* Reads a C string, which may end where readable memory ends. */
void obj_c_text(struct render *r, uint64_t addr, char *buf, size_t n);
/* The text's part behind its last dot. */
const char *obj_short(const char *name);

static inline bool obj_ends_with(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* Opens a container: false when it is open already or too deep; then the caller writes the short form. */
bool obj_enter(struct render *r, uint64_t addr);
void obj_leave(struct render *r);
/* The same for a container of `count` elements between two brackets: writes the opening one. False when all has been written, "[]" or "[...]"; else
 * obj_close() has to end it: that writes the pending error, if any, and `end`. */
bool obj_open(struct render *r, uint64_t addr, uint64_t count, const char brackets[2]);
void obj_close(struct render *r, uint64_t addr, const char *end);
/* Writes what separates elements; false when the i-th of `count` is not shown; if there are too many, it has written how many. */
bool obj_more(struct render *r, uint64_t i, uint64_t count);
/* The same when the number of elements is not known and `most` are shown at most; writes `first` in front of the first. */
bool obj_next(struct render *r, uint64_t i, uint64_t most, const char *first);

/* ---- object_type.c: types ---- */
/* The kinds that some code here tests for. */
enum object_kind {
    KIND_OBJECT, /* an instance of a class that is not known here */
    KIND_NONE,
    KIND_INT,
    KIND_STR,
    KIND_LIST,
    KIND_TUPLE,
    KIND_DICT,
    KIND_SET,
    KIND_RANGE,
    KIND_SLICE,
    KIND_CELL,
    KIND_FUNCTION,
    KIND_BUILTIN,
    KIND_METHOD,
    KIND_MODULE,
    KIND_GENERATOR,
    KIND_TYPE,
    KIND_NDARRAY,
    KIND_OTHER
};

struct object_row;
struct object_type {
    uint64_t addr, flags, base, dict, meta, members, cached_keys, qualname;
    int64_t basicsize, itemsize, dictoffset, nmembers;
    bool heap;  /* a heap type: made by a class statement, or like it */
    bool exact; /* the built-in type itself, not a subclass */
    enum object_kind kind;
    const struct object_row *row;
    char name[96];   /* tp_name */
    char native[40]; /* tp_name of the built-in type it comes from */
    uint64_t native_members;
    int64_t native_size;
};
/* The type at addr; kind and row are not set. */
bool obj_type_read(struct render *r, uint64_t addr, struct object_type *t);
/* The type of the object at addr, with its kind. */
bool obj_type_of(struct render *r, uint64_t addr, struct object_type *t);
/* Whether the object is of that kind; an object that cannot be read is of no kind. */
bool obj_is(struct render *r, uint64_t addr, enum object_kind kind);
/* Whether the object is of that kind; if not, or if a read failed, an error is pending. */
bool obj_expect(struct render *r, uint64_t addr, enum object_kind kind);
/* Returns the address of a tuple's items and sets their count; an error is pending if it is no tuple. */
uint64_t obj_tuple(struct render *r, uint64_t addr, uint64_t *count);
/* Finds a class attribute of the type or of its base types (along tp_base only); false: there is none. */
bool obj_type_attribute(struct render *r, const struct object_type *t, const char *name,
                        uint64_t *value);
/* Whether the type, or one of its base types, is the class `name` of that module or of a submodule. */
bool obj_type_is(struct render *r, const struct object_type *t, const char *module,
                 const char *name);
/* The address of a member that the object's C type declares (none: an error); and the object that the member points to. */
uint64_t obj_member(struct render *r, uint64_t addr, const struct object_type *t, const char *name);
uint64_t obj_member_object(struct render *r, uint64_t addr, const struct object_type *t,
                           const char *name);
/* Writes the type's __qualname__; if `module`, with the module's name in front. */
void obj_put_type(struct render *r, const struct object_type *t, bool module);

/* ---- object_dict.c: dictionaries and the like ---- */
struct dict_iter {
    uint64_t entries, values;         /* values: 0 when they are in the entries */
    uint64_t order;                   /* 0: in the order of the entries */
    int64_t order_step, size, at_key; /* of an entry */
    int64_t at_value;
    uint64_t count, i, used;
};
bool obj_dict_open(struct render *r, uint64_t dict, struct dict_iter *it);
/* Opens an object's values that are not in a dictionary; their keys are in its class. */
bool obj_values_open(struct render *r, uint64_t keys, uint64_t values, bool plain,
                     struct dict_iter *it);
/* Gets the next pair; false: there is none, or an error. */
bool obj_dict_next(struct render *r, struct dict_iter *it, uint64_t *key, uint64_t *value);
/* Finds the value of a str key; false: there is none, or it cannot be read. */
bool obj_dict_find(struct render *r, uint64_t dict, const char *name, uint64_t *value);

/* ---- object_container.c: sets ---- */
struct set_iter {
    uint64_t table, mask, i, used; /* used: how many elements there are */
};
bool obj_set_open(struct render *r, uint64_t set, struct set_iter *it);
/* The next element, or 0: there is none, or an error. */
uint64_t obj_set_next(struct render *r, struct set_iter *it);

/* ---- object_instance.c: attributes of an instance ---- */
/* Like obj_dict_find(): searches the instance's slots, then its dictionary. */
bool obj_attrs_find(struct render *r, uint64_t obj, const struct object_type *t, const char *name,
                    uint64_t *value);

/* ---- what is written ---- */
void obj_render(struct render *r, uint64_t addr); /* object_kind.c */
/*
 * Writes `shape`. In it the following stand for the next of `values`: %o an object (... is written for those that are nested
 * too deep), %e an object or "empty", %s the text of a str. The following are about the object itself: %t its type's name
 * without the module, %T with the module, %n the name of the built-in type, %@ its address.
 */
void obj_put_shape(struct render *r, const char *shape, uint64_t addr, const struct object_type *t,
                   const uint64_t *values);
/* The value of an int that has at most one of CPython's digits. */
uint32_t obj_small_int(struct render *r, uint64_t addr);                  /* object_number.c */
void obj_put_float(struct render *r, double v, int mantissa, bool point); /* bits: 53, 24, 11, 8 */
void obj_put_complex(struct render *r, double re, double im, int mantissa);
/* Writes characters of 1 byte, as bytes, or of 4, as a str. object_text.c */
void obj_put_characters(struct render *r, uint64_t data, uint64_t length, unsigned unit);
/* Writes a part of a str or of bytes, with `before` in front of it; for any other object nothing. */
void obj_put_part(struct render *r, const char *before, uint64_t addr, uint64_t from, uint64_t to);
/* Writes a member of an enumeration, as <Name.MEMBER: value>; false when the object is none. */
bool obj_put_enum(struct render *r, uint64_t addr, const struct object_type *t);

/* Elements of an array of numbers. */
#define ARRAY_DIMS 64
struct array_view {
    uint64_t data;
    int ndim;
    int64_t shape[ARRAY_DIMS], stride[ARRAY_DIMS]; /* stride in bytes */
    char kind;              /* numpy's: b i u f c B(bfloat16) S U V O M m, or ? */
    uint32_t size;          /* bytes of an element */
    bool swapped;           /* big-endian */
    int unit, per;          /* for M and m: numpy's unit, and how many of it; per 0: not known */
    uint64_t names, fields; /* for V: the tuple of names and the dict of fields, or 0 */
    uint64_t subarray;      /* for V: describes the array in each element, or 0 */
};
/* Describes the numpy.ndarray at addr. */
bool obj_array_open(struct render *r, uint64_t addr, struct array_view *v);
/* Writes a dtype as its str() does, except that a record's fields have type names; `quoted`: in quotes, within other text. */
void obj_put_dtype(struct render *r, const struct array_view *v, bool quoted);
void obj_put_dims(struct render *r, const struct array_view *v); /* "(2, 3)" */
/* ": first, second, ..." in the order of the indices, the last one fastest. */
void obj_put_values(struct render *r, const struct array_view *v);
void obj_put_element(struct render *r, uint64_t data, const struct array_view *v);
void obj_put_time64(struct render *r, int64_t value,
                    const struct array_view *v); /* object_time64.c */
void obj_put_unit(struct render *r, const struct array_view *v);
bool obj_has_unit(const struct array_view *v);
/* Opens a pyarrow.ChunkedArray: *v is of kind 'A', and only obj_put_arrow() can write its elements. */
bool obj_arrow_open(struct render *r, uint64_t addr, struct array_view *v); /* object_arrow.c */
void obj_put_arrow(struct render *r, const struct array_view *v, uint64_t i);
/* Writes a DataFrame or a Series; false when the object is none, or when it cannot be made sense of. */
bool obj_put_pandas(struct render *r, uint64_t addr, const struct object_type *t);

/* ---- object_kind.c: the table of the kinds of objects: how each is known, and how it is written ---- */
/* Writes an object. An error that the function leaves pending is written after it; -ENOTSUP, set before anything is written, means
 * that the layout is a different one: then the object is shown as an instance. */
typedef void obj_put_fn(struct render *r, uint64_t addr, const struct object_type *t);

struct object_row {
    const char *name; /* of the type; if it ends in a dot: of all types whose name begins so */
    enum object_kind kind;
    unsigned flag;     /* the field with the flag by which CPython itself knows the type, or 0 */
    bool in_library;   /* a C type of the standard library, which may be a heap type */
    bool value;        /* an instance of a subclass is written as Name(VALUE) */
    obj_put_fn *put;   /* NULL: `shape` is written */
    const char *shape; /* for obj_put_shape(); its values are */
    const char *members[3]; /* these members of the type, or else */
    unsigned fields[3];     /* pointers at these places in the object (fields of object_fields) */
};

const struct object_row *obj_row_of_name(const char *name); /* NULL: none; static storage */
/* The row for a type with these flags, or that of KIND_OBJECT. */
const struct object_row *obj_row_of_flags(const struct object_fields *f, uint64_t flags);

/* Writes objects one after the other; `names`: as many str objects (the field names of a named tuple), or 0. object_container.c */
void obj_put_items(struct render *r, uint64_t items, uint64_t count, uint64_t names);
obj_put_fn obj_put_list, obj_put_tuple, obj_put_dict, obj_put_set, obj_put_range, obj_put_deque,
    obj_put_exception;                                                 /* object_container.c */
obj_put_fn obj_put_int, obj_put_bool, obj_put_real, obj_put_imaginary; /* object_number.c */
obj_put_fn obj_put_str, obj_put_byte_string, obj_put_bytearray;        /* object_text.c */
obj_put_fn obj_put_datetime, obj_put_timedelta, obj_put_timezone, obj_put_decimal, obj_put_array,
    obj_put_memoryview, obj_put_partial, obj_put_pattern, obj_put_match; /* object_standard.c */
obj_put_fn obj_put_ndarray, obj_put_numpy_scalar;                        /* object_array.c */
obj_put_fn obj_put_tensor, obj_put_torch_named;                          /* object_torch.c */
obj_put_fn obj_put_instance; /* object_instance.c: an instance of a class that is not built in */

#endif
