/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pywalk.h - walks CPython's frames from raw memory. No CPython headers, no Python calls: memory is read through a callback only, so that the same
 * code serves the sampler inside the process, GDB, process_vm_readv from outside, and core files.
 *
 *     struct pywalk_found py;                              // find.h; or fill in a struct pywalk_target
 *     rc = pywalk_find_image(mem, start_of_its_mapping, &py);
 *     struct pywalk pw;
 *     rc = pywalk_init(&pw, pywalk_process(pid), &py.target);
 *     n = pywalk_threads(&pw, threads, max, &more);
 *     n = pywalk_frames(&pw, threads[i].tstate, frames, max, &cut);
 *     rc = pywalk_code(&pw, frames[0].code, &code);
 *     line = pywalk_frame_line(&pw, &code, frames[0].lasti);
 *
 * Layouts: 3.6-3.12 from offsets_table.inc, generated from each version's own headers by gen_offsets.py (checked in with its output); 3.13-3.15 from
 * _Py_DebugOffsets, every field range-checked before use. Final releases, x86-64, builds with a GIL (debug builds too, from 3.8); anything else is -ENOTSUP.
 *
 * All functions but pywalk_find_pthread_tid_off are async-signal-safe, allocate nothing, hold no lock and keep no global state: everything is in struct
 * pywalk, which is read-only after init and may be shared by threads and handlers. Stack: pywalk_frames 9 KB, the others 1 KB: a handler on an alternate stack
 * calls pywalk_frames_in. Errors: -EFAULT unreadable memory, -EBADMSG inconsistent (a torn or corrupt structure), -ENOTSUP this version or build is not known.
 */
#ifndef PROBING_PYWALK_H
#define PROBING_PYWALK_H

#include <stddef.h>
#include <stdint.h>

/* Copies n bytes at `addr` of the target into buf: 0 or -EFAULT. */
typedef int (*pywalk_read_fn)(void *ctx, uint64_t addr, void *buf, size_t n);

struct pywalk_mem {
    pywalk_read_fn read; /* pywalk_read_direct: memcpy from this very address space */
    void *ctx;
};
/*
 * Reads without any guard. pywalk_frames, which may then be called for the calling thread only, touches a frame only when it lies on
 * the thread's data stack or the kernel says that it can be read, so a pointer caught while it changes does no harm.
 */
int pywalk_read_direct(void *ctx, uint64_t addr, void *buf, size_t n);
/* Reads by process_vm_readv; ctx is (void *)(intptr_t)pid, which may be this process. Never faults. */
int pywalk_read_process(void *ctx, uint64_t addr, void *buf, size_t n);
static inline struct pywalk_mem pywalk_process(int pid) {
    return (struct pywalk_mem){pywalk_read_process, (void *)(intptr_t)pid};
}

struct pywalk_offsets; /* offsets.h */

struct pywalk {
    struct pywalk_mem mem;
    uint32_t version;       /* PY_VERSION_HEX */
    uint32_t keep;          /* set by the caller after init; 1, 2: see pywalk_frames */
    uint64_t runtime;       /* address of _PyRuntime; 3.6: 0 */
    uint64_t code_type;     /* PyCode_Type, or 0 */
    uint64_t private_[160]; /* the offsets, copied: see offsets.h */
};

/*
 * Where things are in the target; found by symbol (dlsym in process, ELF dynsym from outside). runtime: address of _PyRuntime (3.7+). For 3.6:
 * interp_head = the value PyInterpreterState_Head() returns, current = address of _PyThreadState_Current (0: the GIL's holder is not known).
 * code_type: address of PyCode_Type; 0: all code objects of a stack must still be of one type, but which is not checked.
 */
struct pywalk_target {
    uint32_t version; /* PY_VERSION_HEX; 0: read from _Py_DebugOffsets (3.13+) or -ENOTSUP */
    uint64_t runtime;
    uint64_t interp_head;
    uint64_t current;
    uint64_t code_type;
    uint64_t pthread_tid_off; /* of the tid in struct pthread (before 3.11); 0: not known */
};
/*
 * Chooses the layout and checks it against the target. 0; -ENOTSUP; -EAGAIN: 3.6 with no interpreter yet; -EBADMSG: the structures do not fit (or
 * were being changed: try again); -EFAULT. It also returns 0 before Python is initialised; pywalk_threads then gives -EAGAIN.
 */
int pywalk_init(struct pywalk *pw, struct pywalk_mem mem, const struct pywalk_target *t);

/*
 * For pthread_tid_off: where this process's glibc keeps a thread's kernel id in struct pthread. Starts a short-lived
 * thread to be sure: not async-signal-safe. Returns the offset in bytes, -ENOENT (an unknown libc), or pthread_create's -errno.
 */
int pywalk_find_pthread_tid_off(void);

#define PYWALK_HOLDS_GIL 1u /* it holds its interpreter's GIL */
#define PYWALK_MAIN      2u /* main thread of the main interpreter (the oldest thread state) */
/* COLLECTING: the thread's interpreter is collecting garbage, and the thread holds the GIL or is the only one (3.7+): it is the thread that collects, unless a
 * finaliser on another thread's stack has released the GIL. MAY_COLLECT: the thread does not hold the GIL, but may be that other thread. */
#define PYWALK_COLLECTING  4u
#define PYWALK_MAY_COLLECT 16u
#define PYWALK_FINALIZING  8u /* it is finalising Python (3.7+) or its interpreter (3.12+) */
struct pywalk_thread {
    uint64_t tstate, interp;
    uint64_t ident; /* threading.get_ident(): pthread_self() */
    uint32_t tid;   /* kernel thread id; 0 = not known */
    uint32_t flags; /* PYWALK_* */
    int64_t interp_id;
};
/* Lists the thread states of all interpreters, newest first per interpreter, as CPython links them. A thread that is just being started may still have its
 * creator's ident and tid, and no frames. tid is in the target's own pid namespace. Returns how many (at most max; *more set when there were more), or -errno.
 * -EAGAIN: Python is not initialised (yet, or any more). Safe against concurrent changes: a broken link ends with -EBADMSG. With pw->keep *more is -errno when
 * only a part could be read. */
int pywalk_threads(const struct pywalk *pw, struct pywalk_thread *out, size_t max, int *more);
/* The interpreter of a thread state, 0 where it cannot be read. */
uint64_t pywalk_interp(const struct pywalk *pw, uint64_t tstate);
/* Whether a thread whose stack reaches from `sp` to `ident` may be running with this thread state of a subinterpreter. Before 3.13 any thread may enter it. */
int pywalk_runs_on(const struct pywalk *pw, uint64_t tstate, uint64_t sp, uint64_t ident);
/* Sets *stamp to a number that changes when, in the newest interpreter, a thread state is added (new ones come first) or the newest one
 * is removed: two to four reads instead of a whole list. It does not change when other thread states are removed. Errors as above. */
int pywalk_threads_newest(const struct pywalk *pw, uint64_t *stamp);
/* Whether one of the thread states, up to a 0, holds its interpreter's GIL (not known in 3.6 without target.current). Three to five reads for each. */
int pywalk_holds_gil(const struct pywalk *pw, const uint64_t *states);

/* The native eval loop was entered for this frame: its caller is native code. (3.6-3.10: all frames.) */
#define PYWALK_ENTRY     1u
#define PYWALK_GENERATOR 2u /* a generator's, coroutine's or asynchronous generator's frame */
struct pywalk_frame {
    uint64_t frame; /* address of the PyFrameObject or _PyInterpreterFrame */
    uint64_t code;  /* address of the code object */
    /* Byte offset of the executing instruction in co_code (3.11, 3.12: of it or of one of its inline caches); -1 = not started. */
    int32_t lasti;
    uint32_t flags; /* PYWALK_* */
    uint64_t place; /* from pywalk_place() */
};
/*
 * The Python frames of a thread, innermost first; shims, trampolines and incomplete frames (3.11+: not yet at their first traceable instruction; CPython does
 * not show them either) are left out. So there may be one native eval loop, the innermost, more than there are entry frames: match them from the outermost on.
 *
 * Returns the count, 0 for a thread running no Python, or -errno. *cut (may be NULL) is set when there were more than max: then the base was not reached, and
 * not checked. -EBADMSG: the chain did not reach its base, has a cycle, an unknown owner or something that is no code object, or (3.11, 3.12) is not the one
 * on the thread's data stack: no part of it is returned. A stopped or interrupted thread gives it as well when it is caught entering an eval loop (3.11, 3.12:
 * some instructions, whenever C calls Python): try again a little later, or leave the sample out.
 *
 * pw->keep is for memory that does not change: 1: the part of a chain that can be read is returned; 2: also a part of a chain that is inconsistent. *cut
 * is -errno then, and a frame without a readable code object has a `code` of 0.
 *
 * `tstate` must be a live thread state of the target. With pywalk_read_direct it must be the calling thread's.
 */
int pywalk_frames(const struct pywalk *pw, uint64_t tstate, struct pywalk_frame *out, size_t max,
                  int *cut);
/* The same, but it works in PYWALK_SPACE bytes that the caller provides, and needs little stack. */
#define PYWALK_SPACE 8448
int pywalk_frames_in(const struct pywalk *pw, uint64_t tstate, struct pywalk_frame *out, size_t max,
                     int *cut, void *space);

/*
 * For a thread that has several states, one in each interpreter that it has entered: frames[from] to frames[n - 1] have been read from one of them, and are
 * put between the frames before, which an earlier call has put in order. What runs a frame is further in on the C stack (which reaches from `sp` to `ident`) than
 * what runs its caller: that is the order. Sets the frames' `place`, an address there. Frames whose place is not known stay where they are. 3.10+: a state's
 * frames need not stand together, since an interpreter can be entered anew from one that it has entered.
 */
void pywalk_place(const struct pywalk *pw, uint64_t tstate, uint64_t sp, uint64_t ident,
                  struct pywalk_frame *frames, size_t from, size_t n);

/* Identity of a code object, from its address, its names' addresses, its first line and its line table's address: changes
 * when the address is reused for another. One read; some ns in direct mode. */
int pywalk_code_identity(const struct pywalk *pw, uint64_t code, uint64_t *hash);

struct pywalk_code {
    char name[256];  /* UTF-8; co_qualname from 3.11, else co_name; cut at a character */
    char file[1024]; /* co_filename */
    int32_t firstline;
    uint64_t linetable; /* address of the table's bytes (co_lnotab, co_linetable) */
    uint32_t linetable_len;
};
/* Returns 0, or -errno: then *out is undefined. With pw->keep a text that cannot be read is empty. */
int pywalk_code(const struct pywalk *pw, uint64_t code, struct pywalk_code *out);
/* Returns the source line of the instruction at `lasti` (of a frame) in this code; 0: it has none; -errno. Reads the line table
 * through the callback in small pieces. A lasti of -1 gives the first line. */
int pywalk_frame_line(const struct pywalk *pw, const struct pywalk_code *code, int32_t lasti);
/*
 * From 3.11 on the columns as well: where the expression being evaluated begins and ends (the end is exclusive), in bytes of the UTF-8 source line from 0 on,
 * as co_positions() has them. -1: not known (before 3.11, -X no_debug_ranges, made by the compiler). Lines are 0 where the instruction has none. 0 or -errno.
 */
struct pywalk_position {
    int32_t line, end_line;
    int32_t column, end_column;
};
int pywalk_position(const struct pywalk *pw, const struct pywalk_code *code, int32_t lasti,
                    struct pywalk_position *out);

/* Writes a str object as UTF-8 (lone surrogates as '?'), cut to n - 1 bytes between characters. Returns the length or -errno. */
int pywalk_str(const struct pywalk *pw, uint64_t obj, char *buf, size_t n);

#endif
