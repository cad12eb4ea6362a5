/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.h - records every collective, send and receive of torch.distributed, the ones that DDP makes in C++ included.
 *
 * A part (agent/core/part.h): installs itself once torch is there, writes what hangs meanwhile, and at the end what is not complete.
 *
 * How: the virtual functions of the backends (ProcessGroupGloo, ProcessGroupNCCL) are entered through C functions of ours: their
 * places in the vtable, found by the exported functions' addresses, are overwritten (comm_wrap.c). There all is known but the
 * completion: group, op, tensors, root, peer. Completion is the end of the RecordFunction that the backend makes for
 * the operation (`gloo:all_reduce`; comm_observe.c), on whatever thread that is; NCCL's by CUDA events (comm_nccl.c). Offsets in torch's objects are
 * found by experiment in the process itself, never assumed; what cannot be found is left out and noted (comm_python.c).
 *
 * Sequence numbers: gloo counts its collectives itself, equally on all ranks, and that number is taken, so ranks match
 * although their recordings began at different times. NCCL's backend is asked for its count, and ours is never behind that.
 * Sends and receives are counted for each pair of ranks and direction.
 */
#ifndef PROBING_AGENT_COMM_H
#define PROBING_AGENT_COMM_H

#include <stdint.h>

/* ---- between the comm files ---- */

enum comm_backend { COMM_GLOO, COMM_NCCL, COMM_BACKENDS };
enum { COMM_GROUPS = 1024, COMM_OPS = 1024 };
enum { COMM_INCOMPLETE = 1, COMM_UNSEEN = 2, COMM_RAISED = 4, COMM_FAILED = 8 }; /* comm.flags */

/* A process group of this process. Only appended, under a lock; read without. */
struct comm_group {
    void *self;      /* (a) the C++ object; NULL: destroyed, its address belongs to another now */
    uint32_t number; /* 1, 2, ... */
    enum comm_backend backend;
    uint64_t seq;   /* (a) last sequence number */
    uint32_t named; /* (a) torch's name is known. "0#2": the second group that it calls "0" */
    uint32_t tries;
    uint32_t written; /* the trace file (comm.c) that has its record */
    int32_t rank, size;
    char name[64], desc[64];
    uint32_t nranks;
    uint64_t ranks[64];
    uint32_t pairs_lock;
    struct {
        uint64_t key, count;
    } pair[64]; /* peer << 1 | received, + 2 */
};

/* An operation in flight. */
struct comm_op {
    /* comm_observe.c's. Once set it stays: torch destroys its context when this may be another operation. */
    void *const *observer;
    void *context, *start, *end; /* comm_nccl.c's: CUDA events, kept for the next one */
    uint32_t state;              /* (a) 0 free, 1 being filled, 2 in flight */
    uint32_t open;               /* (a) the call itself, and each ticket: what is not over */
    uint32_t tickets, claimed;   /* (a) RecordFunctions of its parts: all, and those begun */
    uint32_t noted;              /* (a) written as incomplete */
    uint32_t tid;
    uint64_t number, enter, seq, bytes; /* enter: ns of CLOCK_MONOTONIC */
    uint64_t host, last; /* (a) ns: the call's duration; time of the latest completion */
    const char *op;
    const char *dtype;
    const char *title;  /* of its RecordFunctions */
    const void *tensor; /* the first one, of the part that was called last */
    int32_t src, dst;
    uint32_t group, flags;
    uint32_t gpu; /* (a) comm_nccl.c's: its events are on their way; it is one of `open` then */
    void *stream;
    uint64_t communicator;
};

/* comm.c. Any thread. Groups and operations lie in static tables. _of: made if it is new, NULL: there are too many; _find: NULL, it is not
 * known. _pair_count: the number of this message between the pair in that direction, from 1; 0: too many pairs. */
struct comm_group *comm_group_of(void *self, enum comm_backend backend);
struct comm_group *comm_group_at(unsigned i); /* NULL at the end */
struct comm_group *comm_group_find(const void *self);
uint64_t comm_pair_count(struct comm_group *g, int peer, int received);
struct comm_op *comm_op_at(unsigned i); /* each place; NULL at the end */
struct comm_op *comm_begin(void);       /* NULL: not recording, or too many in flight */
void comm_abandon(struct comm_op *op);  /* it was not called after all */
void comm_release(struct comm_op *op, uint64_t now); /* one of `open` is over; now: ns */
int comm_claim(struct comm_op *op); /* takes a ticket, to be released then: 1; 0: none is left */

/* A RecordFunction has begun: whose it is. That of the thread's current operation, else (a backend's own thread executes) the
 * one that has this tensor, else the oldest of that title: backends begin them in the order of the calls. Its ticket is
 * taken, and comm_release() is to follow. NULL: nobody's. */
struct comm_op *comm_executing(struct comm_op *current, const char *title, const void *record,
                               const void *(*tensor_of)(const void *record));
/* Whether completions are seen at all (or it is too early to know). */
int comm_expected(void);

/* comm_wrap.c */
int comm_wrap_install(enum comm_backend backend, void *handle); /* places patched, or -errno */
struct comm_op *comm_wrap_current(void); /* the operation being called by this thread */

/* comm_nccl.c. When the GPU is at NCCL's operations: then `enter` becomes the time when it came to it. All but _drop (any thread) by the
 * service thread. _round: NCCL is entered, and asked from now on, once it is there; 1, 0 not yet, -1 never. _quit: what is done
 * by now is released, and nothing more is asked. _drop: its end will not be known. */
struct writer;
int comm_nccl_round(struct writer *w, uint64_t now);
void comm_nccl_quit(struct writer *w, int stays); /* agent_part.quit */
void comm_nccl_drop(struct comm_op *op);
void comm_nccl_after_fork(void);

/* comm_observe.c */
/* An operation begins: from now on completions are seen, while this recording lasts. Any thread. */
void comm_observe_begin(void);
/* Completions are seen no more, but of what has begun. Service thread, when nobody records. */
void comm_observe_end(void);
void comm_observe_after_fork(void);
int comm_observed(void); /* completions are seen */

/* comm_python.c: what is found by experiments with torch's objects. */
struct comm_layout {
    int numel, dtype; /* offsets in TensorImpl; -1 not known */
    int root[4];      /* offset of rootRank in Broadcast-, Reduce-, Gather-, ScatterOptions */
    int tag;          /* offset of the counter of collectives in ProcessGroupGloo */
};
extern struct comm_layout comm_layout; /* filled in before anything is installed */
void comm_install(void);               /* a pending call, once */
void comm_python_measure(void);        /* a pending call */
void comm_python_names(void);          /* a pending call: names of groups */

#endif
