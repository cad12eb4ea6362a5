/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object.h - Python objects as text, from raw memory: no Python code runs in the target, nothing is written there.
 *
 *     struct pywalk_objects ob;
 *     rc = pywalk_objects_init(&ob, &pw);                  // pw: pywalk_init was done; it must outlive ob
 *     n = pywalk_locals(&ob, &frame, 100, each, ctx);      // each(ctx, local): name, kind, the object's address
 *     n = pywalk_repr(&ob, local->object, NULL, buf, sizeof buf);
 *
 * The text is what repr() would say for None, bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict, range, slice,
 * functions, classes, exceptions, data classes, named tuples, enum members, and what datetime, zoneinfo, decimal, array, functools.partial,
 * re.compile and re.match make; else <Type at 0x...: attribute=value, ...>; arrays and tensors <numpy.ndarray shape=(2, 3) dtype=int64: 1, 2, ...>,
 * <memoryview shape=(3,) format='B': 97, 98, 99>, dict_keys({'a': 1}), <weakref to OBJECT>, pandas' frames <pandas.DataFrame shape=(3, 2) columns:
 * 'a' int64, 'b' float64>. What is cut says so with "...". It differs from repr() where that would have to run code: a class's own __repr__ is not
 * called, a subclass of a built-in type is Name(value), an OrderedDict has its dict's order. Memory of a GPU is never touched.
 *
 * Everything read is taken for garbage until it has been checked; work is bounded by the limits. What cannot be
 * read is <unreadable at 0x...>, what makes no sense <corrupt at 0x...>: an object just being made may be either.
 *
 * Allocates nothing, keeps no global state; 16 KB of stack, 40 KB where arrays of objects hold each other. For use from
 * outside the target: pw must read through a callback that fails for bad addresses (not pywalk_read_direct). Not meant for signal handlers (it formats numbers).
 * Layouts: object_table.inc (gen_objects.py; 3.13+ compared with the target's own _Py_DebugOffsets), torch_table.inc
 * (gen_torch.py; each tensor is checked against it).
 */
#ifndef PROBING_PYWALK_OBJECT_H
#define PROBING_PYWALK_OBJECT_H

#include "pywalk.h"

struct object_fields; /* object_render.h */

struct pywalk_objects {
    const struct pywalk *pw;
    const struct object_fields *f;
};
/* 0; -ENOTSUP: the version's objects are not known; -EINVAL: pw reads without a guard; -EFAULT. */
int pywalk_objects_init(struct pywalk_objects *ob, const struct pywalk *pw);

#define PYWALK_MAX_DEPTH 16
struct pywalk_limits { /* 0 in a field: the default */
    uint32_t depth;    /* containers within containers (4; at most PYWALK_MAX_DEPTH) */
    uint32_t items;    /* of one container or array (20) */
    uint32_t string;   /* characters of a str, bytes of a bytes object (200) */
    uint32_t reads;    /* of the target's memory, in all (5000; each of 4 KB at most) */
};
/*
 * The object at `addr` into buf (n >= 16), as UTF-8 without control characters, ended by NUL; limits may be NULL. Where
 * buf is too small the text ends in "...". Returns the length; never fails otherwise than by -EINVAL (n < 16).
 */
int pywalk_repr(const struct pywalk_objects *ob, uint64_t addr, const struct pywalk_limits *limits,
                char *buf, size_t n);
/* The name of the object's type, as repr(type(x)) has it between its quotes. Length, or -errno. */
int pywalk_type_name(const struct pywalk_objects *ob, uint64_t addr, char *buf, size_t n);

#define PYWALK_LOCAL_ARGUMENT 1u
#define PYWALK_LOCAL_CELL     2u /* shared with an inner function */
#define PYWALK_LOCAL_FREE     4u /* of an outer function */
#define PYWALK_LOCAL_GLOBAL   8u /* the frame is a module's */
struct pywalk_local {
    char name[128]; /* UTF-8, cut at a character */
    uint32_t flags; /* PYWALK_LOCAL_* */
    uint64_t object;
};
/* Return non-zero to end. */
typedef int (*pywalk_local_fn)(void *ctx, const struct pywalk_local *local);
/*
 * Calls fn for each argument and local of the frame that has a value, in the order of its code; values in cells are taken out. In a class body the
 * names defined so far; in a module's frame its globals but for modules, functions, classes and names with two underscores in front. At most `max`.
 * Returns how many; -EBADMSG, -EFAULT: the frame cannot be made sense of (more than what fn got so far is not known).
 */
int pywalk_locals(const struct pywalk_objects *ob, const struct pywalk_frame *frame, size_t max,
                  pywalk_local_fn fn, void *ctx);

/*
 * Qualified names before 3.11 (later code objects have them). pywalk_owner() says who knows the one of a frame's function, 0: nobody;
 * async-signal-safe, `pw` may read directly. pywalk_qualname() asks it, then or later, and believes only what has this
 * very code: length, -ENOENT or -errno. Nested functions, lambdas and comprehensions keep their plain names.
 */
uint64_t pywalk_owner(const struct pywalk_objects *ob, const struct pywalk *pw,
                      const struct pywalk_frame *frame);
int pywalk_qualname(const struct pywalk_objects *ob, uint64_t code, uint64_t owner, char *buf,
                    size_t n);
/* threading.Thread.name of the thread whose outermost frame this is. Length; -ENOENT: threading has not started it; -errno. */
int pywalk_thread_name(const struct pywalk_objects *ob, const struct pywalk_frame *outermost,
                       char *buf, size_t n);

#endif
