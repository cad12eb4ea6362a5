/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object.h - renders Python objects as text, from raw memory: no Python code runs in the target, and nothing is written there.
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
 * 'a' int64, 'b' float64>. "..." marks what is cut. It differs from repr() where that would have to run code: a class's own __repr__ is not
 * called, a subclass of a built-in type is Name(value), an OrderedDict has its dict's order. Memory of a GPU is never touched.
 *
 * Everything that is read counts as garbage until it has been checked; the limits bound the work. An object that cannot be
 * read is shown as <unreadable at 0x...>, one that makes no sense as <corrupt at 0x...>: an object just being created may be either.
 *
 * Allocates nothing, keeps no global state; 16 KB of stack, 40 KB where arrays of objects hold each other. For use from outside the target: pw must read
 * through a callback that fails for bad addresses (not pywalk_read_direct). Not meant for signal handlers (it formats numbers). Layouts: object_table.inc
 * (gen_objects.py; 3.13+ compared with the target's own _Py_DebugOffsets), torch_table.inc (gen_torch.py; each tensor is checked against it).
 */
#ifndef PROBING_PYWALK_OBJECT_H
#define PROBING_PYWALK_OBJECT_H

#include "pywalk.h"

struct object_fields; /* object_render.h */

struct pywalk_objects {
    const struct pywalk *pw;
    const struct object_fields *f;
};
/* Returns 0; -ENOTSUP: the object layouts of this version are not known; -EINVAL: pw reads without a guard; -EFAULT. */
int pywalk_objects_init(struct pywalk_objects *ob, const struct pywalk *pw);

#define PYWALK_MAX_DEPTH 16
struct pywalk_limits { /* 0 in a field: the default, in parentheses here */
    uint32_t depth;    /* levels of nested containers (4; at most PYWALK_MAX_DEPTH) */
    uint32_t items;    /* items shown of one container or array (20) */
    uint32_t string;   /* characters of a str, bytes of a bytes object (200) */
    uint32_t reads;    /* reads of the target's memory in all (5000), each of 4 KB at most */
};
/*
 * Writes the object at `addr` to buf (n >= 16), as UTF-8 without control characters, ended by NUL; limits may be NULL. If
 * buf is too small, the text ends in "...". Returns the length; the only error is -EINVAL (n < 16).
 */
int pywalk_repr(const struct pywalk_objects *ob, uint64_t addr, const struct pywalk_limits *limits,
                char *buf, size_t n);
/* Writes the name of the object's type, as repr(type(x)) has it between its quotes. Returns the length, or -errno. */
int pywalk_type_name(const struct pywalk_objects *ob, uint64_t addr, char *buf, size_t n);

#define PYWALK_LOCAL_ARGUMENT 1u
#define PYWALK_LOCAL_CELL     2u /* shared with an inner function */
#define PYWALK_LOCAL_FREE     4u /* a variable of an outer function */
#define PYWALK_LOCAL_GLOBAL   8u /* the frame is a module's */
struct pywalk_local {
    char name[128]; /* UTF-8, cut at a character */
    uint32_t flags; /* PYWALK_LOCAL_* */
    uint64_t object;
};
/* Returns non-zero to end the enumeration. */
typedef int (*pywalk_local_fn)(void *ctx, const struct pywalk_local *local);
/*
 * Calls fn for each argument and local variable of the frame that has a value, in the order of its code, at most `max` times; for a cell fn gets its content. In
 * a class body these are the names defined so far; in a module's frame its globals except modules, functions, classes and names that begin with two underscores.
 * Returns the number of variables; -EBADMSG, -EFAULT: the frame cannot be made sense of (fn may have been called for some variables).
 */
int pywalk_locals(const struct pywalk_objects *ob, const struct pywalk_frame *frame, size_t max,
                  pywalk_local_fn fn, void *ctx);

/*
 * Qualified names before 3.11 (later code objects have them). pywalk_owner() returns what leads to the name of a frame's function, 0: nothing
 * does; async-signal-safe, `pw` may read directly. pywalk_qualname() gets the name from that, then or later, and accepts only a function with this
 * very code. It returns the length, -ENOENT or -errno. Nested functions, lambdas and comprehensions keep their plain names.
 */
uint64_t pywalk_owner(const struct pywalk_objects *ob, const struct pywalk *pw,
                      const struct pywalk_frame *frame);
int pywalk_qualname(const struct pywalk_objects *ob, uint64_t code, uint64_t owner, char *buf,
                    size_t n);
/* threading.Thread.name of the thread whose outermost frame this is. Returns the length; -ENOENT: threading did not start it; -errno. */
int pywalk_thread_name(const struct pywalk_objects *ob, const struct pywalk_frame *outermost,
                       char *buf, size_t n);

#endif
