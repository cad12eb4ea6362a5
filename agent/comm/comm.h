/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.h - records every collective, send and receive of torch.distributed, the ones that DDP makes in C++ included.
 *
 * It is a part (agent/core/part.h): it installs itself once torch is loaded, and writes incomplete operations, too: while they hang, and at the end.
 *
 * How: the virtual functions of the backends (ProcessGroupGloo, ProcessGroupNCCL) are wrapped by C functions of ours: their vtable
 * entries, found by the exported functions' addresses, are overwritten (comm_wrap.c). A wrapper knows all but the completion: group,
 * op, tensors, root, peer. An operation is complete when the RecordFunction that the backend makes for it ends (`gloo:all_reduce`;
 * comm_observe.c), on whatever thread; for NCCL, CUDA events tell it (comm_nccl.c). Offsets in torch's objects are found by experiments
 * in the process itself, never assumed; what cannot be found is left out, and a note says so (comm_python.c).
 *
 * Sequence numbers: gloo counts its collectives itself, equally on all ranks, and its number is used, so that ranks match
 * although their recordings began at different times. NCCL's backend is asked for its count, and our number is never behind it.
 * Sends and receives are counted for each pair of ranks and direction.
 */
#ifndef PROBING_AGENT_COMM_H
#define PROBING_AGENT_COMM_H

#include <stdint.h>

/* ---- between the comm files ---- */

enum comm_backend { COMM_GLOO, COMM_NCCL, COMM_BACKENDS };
enum { COMM_GROUPS = 1024, COMM_OPS = 1024 };
enum { COMM_INCOMPLETE = 1, COMM_UNSEEN = 2, COMM_RAISED = 4, COMM_FAILED = 8 }; /* comm.flags */

/* A process group of this process. Groups are only appended, under a lock; readers take no lock. */
struct comm_group {
    void *self;      /* (a) the C++ object; NULL: destroyed, another may have its address now */
    uint32_t number; /* 1, 2, ... */
    enum comm_backend backend;
    uint64_t seq;     /* (a) last sequence number */
    uint32_t named;   /* (a) torch's name is known. "0#2": the second group that it calls "0" */
    uint32_t tries;   /* how often its name was looked for */
    uint32_t written; /* the trace file (comm.c) that has its record */
    int32_t rank, size;
    char name[64], desc[64];
    uint32_t nranks;
    uint64_t ranks[64];
    uint32_t pairs_lock;
    struct {
        uint64_t key, count;
    } pair[64]; /* key: (peer << 1 | received) + 2; 0: free */
};

/* An operation in flight. */
struct comm_op {
    /* comm_observe.c's vtable. Once set it stays: torch may destroy its context when this is another operation already. */
    void *const *observer;
    const char *title;           /* name of its RecordFunctions; stays set, too */
    void *context, *start, *end; /* comm_nccl.c's: CUDA context and events, kept for reuse */
    uint32_t state;              /* (a) 0 free, 1 being filled in, 2 in flight */
    uint32_t open;               /* (a) how many are not over, of the call itself and the tickets */
    uint32_t tickets;            /* (a) number of RecordFunctions of its parts */
    uint64_t claimed;            /* (a) `number` << 16 | number of those that have begun */
    uint32_t noted;              /* (a) written as incomplete */
    uint32_t tid;
    uint64_t number, enter, seq, bytes; /* enter: ns of CLOCK_MONOTONIC */
    uint64_t host, last; /* (a) ns: the call's duration; time of the latest completion */
    const char *op;
    const char *dtype;
    const void *tensor; /* the first tensor of the part that was called last */
    int32_t src, dst;
    uint32_t group, flags;
    uint32_t gpu; /* (a) comm_nccl.c's: state of its events; not 0: it counts in `open` */
    void *stream;
    uint64_t communicator;
};

/* comm.c. Any thread. Groups and operations are in static tables. comm_group_of() adds a group that is new (NULL: there are too many), comm_group_find()
 * does not (NULL: not known). comm_pair_count() returns the number of this message between two ranks in that direction, from 1; 0: too many pairs. */
struct comm_group *comm_group_of(void *self, enum comm_backend backend);
struct comm_group *comm_group_at(unsigned i); /* NULL at the end */
struct comm_group *comm_group_find(const void *self);
uint64_t comm_pair_count(struct comm_group *g, int peer, int received);
struct comm_op *comm_op_at(unsigned i); /* each slot, free or not; NULL at the end */
struct comm_op *comm_begin(void);       /* NULL: not recording, or too many in flight */
void comm_publish(struct comm_op *op);  /* comm_executing() may find its (next) ticket */
void comm_abandon(struct comm_op *op);  /* the operation was not called after all */
void comm_release(struct comm_op *op, uint64_t now); /* one of `open` is over; now: ns */
/* Returns 1: took a ticket of the operation with that number, to be released later; 0: it has none left, or its slot is another operation's. */
int comm_claim(struct comm_op *op, uint64_t number);

/* Returns the operation that a RecordFunction, which has begun, belongs to: the thread's current operation; else (on a backend's own thread)
 * the operation that has this tensor; else the oldest with that title, because backends begin them in the order of the calls. NULL: none.
 * Takes the operation's ticket, so that comm_release() must follow. */
struct comm_op *comm_executing(struct comm_op *current, const char *title, const void *record,
                               const void *(*tensor_of)(const void *record));
/* Returns whether completions are seen at all (or it is too early to know). */
int comm_expected(void);

/* comm_wrap.c */
int comm_wrap_install(enum comm_backend backend, void *handle); /* entries patched, or -errno */
struct comm_op *comm_wrap_current(void); /* the operation being called by this thread */

/* comm_nccl.c: finds when the GPU executes NCCL's operations; `enter` then becomes the time when it began. Service thread, except comm_nccl_drop()
 * (any thread). comm_nccl_round() wraps NCCL and starts to observe it, once it is loaded: returns 1; 0: not yet; -1: never. comm_nccl_quit()
 * releases the operations that are done by now, and ends observing. comm_nccl_drop() gives up an operation: its end will not be known. */
struct writer;
int comm_nccl_round(struct writer *w, uint64_t now);
void comm_nccl_quit(struct writer *w, int stays); /* agent_part.quit */
void comm_nccl_drop(struct comm_op *op);
void comm_nccl_after_fork(void);

/* comm_observe.c */
/* To be called when an operation begins: from now on completions are seen, until this recording ends. Any thread. */
void comm_observe_begin(void);
/* From now on only completions of operations that have begun are seen. Service thread, when nothing is recorded. */
void comm_observe_end(void);
int comm_observed(void); /* returns whether completions are seen */

/* comm_python.c: offsets that are found by experiments with torch's objects. */
struct comm_layout {
    int numel, dtype; /* offsets in TensorImpl; -1 not known */
    int root[4];      /* offset of rootRank in Broadcast-, Reduce-, Gather-, ScatterOptions */
    int tag;          /* offset of the counter of collectives in ProcessGroupGloo */
};
extern struct comm_layout comm_layout; /* filled in before anything is installed */
void comm_install(void);               /* a pending call, once */
void comm_python_measure(void);        /* a pending call */
extern int comm_soon;         /* (a) the program may communicate as soon as torch is imported */
void comm_python_names(void); /* a pending call: names of groups */

#endif
