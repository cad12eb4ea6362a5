/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sampler_threads.h - the sampler thread's data about each Python thread, and what it does with each thread at a tick.
 *
 * Only the sampler thread uses all this; the data that the signal handler uses is in struct request (handler.h).
 */
#ifndef PROBING_AGENT_SAMPLER_THREADS_H
#define PROBING_AGENT_SAMPLER_THREADS_H

#include "agent/pywalk/mem.h"
#include "agent/pywalk/object.h"
#include "agent/sampler/backoff.h"
#include "agent/sampler/handler.h"

/* A sample that is not written yet: later ticks with the same stack only increase its count. */
struct pending {
    uint64_t ts, last; /* when the first tick looked; latest tick */
    uint64_t stack, pc, cpu_us, count;
    unsigned flags;
};

enum sampled_file {
    SAMPLED_SYSCALL,
    SAMPLED_STAT,
    SAMPLED_STATUS,
    SAMPLED_SCHEDSTAT,
    SAMPLED_FILES
};

struct sampled {
    struct request *request;
    uint32_t tid;
    uint64_t ident, tstate, interp, states[CAPTURE_STATES];
    clockid_t clock;
    int fd[SAMPLED_FILES]; /* descriptor + 1 of its open files in /proc/self/task/TID, or 0 */
    int stranger;          /* it has itself set the signal mask that our handler has */
    uint32_t posts, waits; /* signals it has got, up to a few; waits for a CPU that counted */
    uint32_t shut, wary;   /* checks left that must find our signal open; how many to begin with */
    uint64_t open;         /* its CPU clock at the last such check, ns */
    uint32_t listed;       /* number of the last listing that saw it */
    uint64_t seen, waited; /* its CPU clock at the last tick, and at the last of `waits`, ns */
    uint64_t settled;      /* activity() when its stack was last read from outside; 0: not read */
    uint64_t redefine; /* `settled` when a new dictionary epoch began: its stack needs a new key */
    int cut;           /* its native stack was incomplete when last read from outside */
    int late;          /* in a burst: not read yet, and no signal was sent */
    struct backoff backoff;
    struct pending pending;
    uint32_t name_tries;
    char name[16], python_name[64];
};

#define SHUT_NARROW   1024u /* checks after the thread's alternate stack was too small */
#define SHUT_CHECKS   32u   /* checks after its mask has blocked the signal */
#define SAMPLER_PAGES 64u   /* size of the cache of read memory, in pages */

/* Large: in pages of its own, which the kernel makes when they are used. Initially all zeros. */
struct sampler_table {
    struct live *live;
    struct ring *ring; /* the sampler thread's own */
    struct capture_dict dict;
    struct unwind unwind;
    struct pywalk pw; /* reads through pages */
    struct handler handler;
    struct pywalk_pages pages;
    struct pywalk_page page[SAMPLER_PAGES];
    struct capture capture;
    struct pywalk_frame again[CAPTURE_FRAMES]; /* a second reading */
    struct sampled thread[HANDLER_REQUESTS];   /* the first n in use */
    uint32_t n, listing;
    uint64_t since;         /* when the ticks began: CPU time used before is in no sample */
    uint64_t newest;        /* pywalk_threads_newest() at the last listing */
    uint32_t epoch;         /* the dictionary epoch that pending stacks belong to */
    uint32_t segment;       /* trace segment that has the threads' records */
    int private_files;      /* the sampler thread has a table of file descriptors of its own */
    int coarse;             /* thread CPU clocks tick too coarsely to show whether a thread ran */
    int checked, no_signal; /* handler_check() in this tick, and what it found */
    uint64_t period, at;    /* sampler_threads_set_period(); when this tick, or burst, looks */
    uint64_t random;
    struct pywalk_thread list[HANDLER_REQUESTS];
};

/* Initialises the table and takes the sampler's ring. To be called on the sampler thread. Returns 0; -EBUSY when all rings are taken. */
int sampler_threads_init(struct sampler_table *s, struct live *live, uint32_t tid);
void sampler_threads_free(struct sampler_table *s);
/* To be called when CPython was found: from now on threads can be listed. Returns 0 or -errno. */
int sampler_threads_attach(struct sampler_table *s, const struct agent_python *py);
/* Sets the time between ticks, ns; 0: no ticks for a while. */
void sampler_threads_set_period(struct sampler_table *s, uint64_t period);
/* Lists the Python threads anew; writes thread records for new and ended ones. now: ns, as below. Returns 0; -EAGAIN: Python is gone. */
int sampler_threads_list(struct sampler_table *s, uint64_t now);
/* The same, but only if the newest thread has changed since the last listing; much cheaper if it has not. */
int sampler_threads_list_if_new(struct sampler_table *s, uint64_t now);
/* Writes a thread record for each thread that was renamed. */
void sampler_threads_rename(struct sampler_table *s, uint64_t now);
/* Takes one sample of every thread that is due at this tick (backoff.h). Returns how many threads may have run since their last sample. */
uint32_t sampler_threads_tick(struct sampler_table *s, const struct tick *tick);
/* Returns whether a thread other than `except` (0: any thread) has not answered its signal. The next tick looks after such signals or, where that is
 * far off, sampler_threads_recheck(): a signal that its thread has blocked meanwhile must not stay pending, because the program might find it. */
int sampler_threads_waiting(const struct sampler_table *s, uint32_t except);
void sampler_threads_recheck(struct sampler_table *s);
/* Takes the stack of every thread except `except` now, as samples with ts `tick` and count 0: they stand for no tick, so sums of
 * counts do not change. Waits for running threads' answers, 50 ms at most. */
void sampler_threads_burst(struct sampler_table *s, uint64_t tick, uint32_t except);
/* Follows dlopen and dlclose: sleeping threads whose native frames ended in an unknown module are read again. */
void sampler_threads_modules(struct sampler_table *s);
/* Writes out the idle samples collected so far. */
void sampler_threads_flush(struct sampler_table *s);
/* Before the end: takes back posted requests and flushes, without records that the threads ended. */
void sampler_threads_end(struct sampler_table *s);
/* Writes a note record: level 0 info, 1 warning, 2 error. */
void sampler_threads_note(struct sampler_table *s, uint64_t now, unsigned level, const char *text);

/* For sampler_tick.c. sampled_flush() writes the thread's pending sample; sampled_cpu() reads its CPU clock, ns (returns 0; -ESRCH: the thread is gone);
 * the others open (return a descriptor or -1), read (return the bytes read; 0: it failed) and close files of /proc/self/task/TID. */
void sampled_flush(struct sampler_table *s, struct sampled *t);
/* Gives up a request (and its ring) whose handler never finished; the thread keeps the old one when there is no other. */
void sampled_new_request(struct sampled *t);
int sampled_cpu(const struct sampled *t, uint64_t *ns);
int sampled_open(uint32_t tid, const char *what);
size_t sampled_read(struct sampler_table *s, struct sampled *t, enum sampled_file file, char *text,
                    size_t size);
void sampled_close(struct sampled *t);

/* sampler_running.c: returns the state of our signal at the thread, as these flags; SAMPLED_PENDING if it cannot be read. */
enum { SAMPLED_PENDING = 1, SAMPLED_BLOCKED = 2, SAMPLED_ASLEEP = 4 };
unsigned sampled_signals(struct sampler_table *s, struct sampled *t);
/* Returns a sample's flags for a thread that runs or waits for a CPU, and is read from outside. */
unsigned sampled_flags(struct sampler_table *s, const struct sampled *t);
/* Samples a running thread from outside: Python frames only, for `n` ticks from `ts` on. */
void sampled_read_running(struct sampler_table *s, struct sampled *t, uint64_t ts, uint64_t n,
                          uint64_t cpu);

#endif
