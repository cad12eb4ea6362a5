/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_render.h - what the parts of the object renderer share. Private to agent/pywalk (object_*.c, task_*.c).
 *
 *     struct render r;
 *     obj_begin(&r, ob, limits, buf, n);
 *     obj_render(&r, addr);
 *     length = obj_end(&r);
 *
 * A render is one text being written: where to, how much may still be read, and the containers that are open. All reads
 * go through it: when its budget is spent they fail with -E2BIG, and when the buffer is full nothing more is done.
 * Functions named obj_put_* write; what they cannot read they say themselves. Others return 0 or -errno.
 */
#ifndef PROBING_PYWALK_OBJECT_RENDER_H
#define PROBING_PYWALK_OBJECT_RENDER_H

#include "mem.h"
#include "object.h"
#include "object_layout.h"
#include "offsets.h"

struct render {
    const struct object_fields *f;
    struct pywalk_mem mem; /* the target's */
    struct pywalk pw;      /* a copy whose reads are counted: for pywalk_str() */
    struct pywalk_limits limit;
    char *buf;
    size_t room, n;
    bool full; /* no room left, or nothing more may be read */
    uint32_t depth;
    uint64_t open[PYWALK_MAX_DEPTH]; /* the containers we are in */
};

/* ---- object_render.c: writing and reading ---- */
void obj_begin(struct render *r, const struct pywalk_objects *ob,
               const struct pywalk_limits *limits, char *buf, size_t n);
int obj_end(struct render *r);
void obj_put(struct render *r, const char *s);
void obj_put_bytes(struct render *r, const char *s, size_t n);
void obj_put_format(struct render *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void obj_put_utf8(struct render *r, uint32_t c);
/* Text of the target's: what is no UTF-8, and control characters, become ?. */
void obj_put_clean(struct render *r, const char *s);
/* "<WHAT at 0xADDR>" */
void obj_put_bad(struct render *r, const char *what, uint64_t addr);
/* For the error of a read: unreadable, corrupt, or that enough was read. */
void obj_put_error(struct render *r, int rc, uint64_t addr);

static inline int get(struct render *r, uint64_t addr, void *buf, size_t n) {
    return r->pw.mem.read(r, addr, buf, n);
}
static inline int get_u64(struct render *r, uint64_t addr, uint64_t *v) {
    return get(r, addr, v, sizeof *v);
}
/* A pointer to an object: besides, -EBADMSG when it cannot be one. NULL is one. */
int obj_get_pointer(struct render *r, uint64_t addr, uint64_t *v);
/* A count: besides, -EBADMSG when it is negative or not below 2^40. */
int obj_get_count(struct render *r, uint64_t addr, uint64_t *v);

static inline int obj_ends_with(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* Opens a container: false when it is open already or too deep; then the caller writes the short form. */
bool obj_enter(struct render *r, uint64_t addr);
void obj_leave(struct render *r);

/* ---- object_type.c: types ---- */
enum object_kind {
    KIND_OBJECT, /* anything else */
    KIND_NONE,
    KIND_ELLIPSIS,
    KIND_NOT_IMPLEMENTED,
    KIND_BOOL,
    KIND_INT,
    KIND_FLOAT,
    KIND_COMPLEX,
    KIND_STR,
    KIND_BYTES,
    KIND_BYTEARRAY,
    KIND_LIST,
    KIND_TUPLE,
    KIND_DICT,
    KIND_SET,
    KIND_FROZENSET,
    KIND_RANGE,
    KIND_SLICE,
    KIND_CELL,
    KIND_FUNCTION,
    KIND_BUILTIN,
    KIND_METHOD,
    KIND_MODULE,
    KIND_GENERATOR,
    KIND_CODE,
    KIND_TYPE,
    KIND_EXCEPTION,
    KIND_NDARRAY,
    KIND_NUMPY_SCALAR,
    KIND_TENSOR,
    KIND_TORCH_DTYPE,
    KIND_TORCH_DEVICE,
    KIND_DEQUE,
    KIND_STANDARD /* object_standard.c has it */
};

struct object_type {
    uint64_t addr, flags, base, dict, meta, members, cached_keys, qualname;
    int64_t basicsize, itemsize, dictoffset, nmembers;
    bool heap;  /* made by a class statement, or like it */
    bool exact; /* the built-in type itself, not a subclass */
    enum object_kind kind;
    char name[96];   /* tp_name */
    char native[40]; /* tp_name of the built-in type it comes from */
    uint64_t native_members;
    int64_t native_size;
};
/* The type at addr; kind is not set. */
int obj_type_read(struct render *r, uint64_t addr, struct object_type *t);
/* The type of the object at addr, with its kind. */
int obj_type_of(struct render *r, uint64_t addr, struct object_type *t);
/* A class attribute of the type or, as far as tp_base goes, of those it comes from: *value, or -ENOENT. */
int obj_type_attribute(struct render *r, const struct object_type *t, const char *name,
                       uint64_t *value);
/* Is the type, or one that it comes from, a class `name` of that module or of one in it? */
bool obj_type_is(struct render *r, const struct object_type *t, const char *module,
                 const char *name);
/* __qualname__; with the module in front, too. */
void obj_put_type(struct render *r, const struct object_type *t, bool module);

/* ---- object_dict.c: dictionaries and the like ---- */
struct dict_iter {
    uint64_t entries, values;         /* values: 0 when they are in the entries */
    uint64_t order;                   /* 0: in the order of the entries */
    int64_t order_step, size, at_key; /* of an entry */
    int64_t at_value;
    uint64_t count, i, used;
};
int obj_dict_open(struct render *r, uint64_t dict, struct dict_iter *it);
/* A dictionary without the dictionary: an object's values, under the keys of its class. */
int obj_values_open(struct render *r, uint64_t keys, uint64_t values, bool plain,
                    struct dict_iter *it);
/* 1: *key and *value are the next pair; 0: no more; -errno. */
int obj_dict_next(struct render *r, struct dict_iter *it, uint64_t *key, uint64_t *value);
/* The value of a str key: 0, -ENOENT, -errno. */
int obj_dict_find(struct render *r, uint64_t dict, const char *name, uint64_t *value);

/* ---- object_attrs.c: attributes of an instance ---- */
struct attrs_iter {
    struct dict_iter dict;
    bool in_dict;
    uint64_t obj, member, members_end, next_type;
    unsigned types;
};
void obj_attrs_open(struct render *r, uint64_t obj, const struct object_type *t,
                    struct attrs_iter *it);
/* As dict_next; the name as text. Slots first, then what is in the instance's dictionary. */
int obj_attrs_next(struct render *r, struct attrs_iter *it, char *name, size_t n, uint64_t *value);
int obj_attrs_find(struct render *r, uint64_t obj, const struct object_type *t, const char *name,
                   uint64_t *value);

/* ---- what is written ---- */
void obj_render(struct render *r, uint64_t addr);  /* object_repr.c */
void obj_put_int(struct render *r, uint64_t addr); /* object_number.c */
/* An int of one digit at most. */
int obj_get_small(struct render *r, uint64_t addr, uint32_t *v);
void obj_put_float(struct render *r, double v, int mantissa, bool point); /* bits: 53, 24, 11, 8 */
void obj_put_complex(struct render *r, double re, double im, int mantissa);
void obj_put_str(struct render *r, uint64_t addr); /* object_text.c */
void obj_put_binary(struct render *r, uint64_t data, uint64_t size);
void obj_put_ucs4(struct render *r, uint64_t data, uint64_t length);
/* A member of an enumeration, as <Name.MEMBER: value>: false when it is none. */
bool obj_put_enum(struct render *r, uint64_t addr,
                  const struct object_type *t); /* object_instance.c */
/* An instance of a class that is nothing built in. */
void obj_put_instance(struct render *r, uint64_t addr, const struct object_type *t);
void obj_put_named(struct render *r, uint64_t addr,
                   const struct object_type *t); /* object_named.c */

/* Elements of an array of numbers. */
struct array_view {
    uint64_t data;
    int ndim;
    int64_t shape[64], stride[64]; /* stride in bytes */
    char kind;                     /* numpy's: b i u f c B(bfloat16) S U V O M m, or ? */
    uint32_t size;                 /* bytes of an element */
    bool swapped;                  /* big-endian */
    int unit, per;                 /* of M and m: so many of numpy's units; per 0: not known */
    uint64_t names, fields;        /* of V: a tuple, and what the dtype keeps of each; or 0 */
};
/* What the numpy.ndarray at addr has. */
int obj_array_open(struct render *r, uint64_t addr, struct array_view *v);
void obj_put_dtype(struct render *r, const struct array_view *v);
void obj_put_shape(struct render *r, const int64_t *shape, int ndim); /* object_array.c */
void obj_put_values(struct render *r, const struct array_view *v);
void obj_put_element(struct render *r, uint64_t data, const struct array_view *v);
void obj_put_time64(struct render *r, int64_t value,
                    const struct array_view *v); /* object_time64.c */
void obj_put_unit(struct render *r, const struct array_view *v);
bool obj_has_unit(const struct array_view *v);
void obj_put_ndarray(struct render *r, uint64_t addr, const struct object_type *t);
void obj_put_numpy_scalar(struct render *r, uint64_t addr, const struct object_type *t);
void obj_put_tensor(struct render *r, uint64_t addr,
                    const struct object_type *t); /* object_torch.c */
void obj_put_torch_named(struct render *r, uint64_t addr, const struct object_type *t);
void obj_put_deque(struct render *r, uint64_t addr,
                   const struct object_type *t); /* object_deque.c */
/* C types of the standard library, by the name of the type. */
bool obj_is_standard(const char *name); /* object_standard.c */
void obj_put_standard(struct render *r, uint64_t addr, const struct object_type *t);
/* A DataFrame or a Series: false when it is none, or when it cannot be made sense of. */
bool obj_put_pandas(struct render *r, uint64_t addr, const struct object_type *t);
/* Between two elements: false when the i-th of `count` is not shown; then it has said how many there are. */
bool obj_more(struct render *r, uint64_t i, uint64_t count); /* object_repr.c */

#endif
