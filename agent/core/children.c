/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/children.h"

#include <stdio.h>

#include "agent/core/settings.h"

#define YOUNG   128        /* children tracked at a time; more of them are only counted */
#define LATE_NS 200000000u /* a child reports every 2 ms; after this silence it is checked */
#define EXEC_NS 2000000000u

struct page { /* all fields are (a) */
    uint64_t ended, failed, gone;
    uint64_t ns; /* sum of the lifetimes of those counted in ended, failed and gone */
    struct young {
        uint32_t pid; /* 0: free */
        uint64_t born, seen;
    } young[YOUNG];
};

/* State of this process as a child. */
static struct {
    struct page *page;     /* page that counts this process, until it is settled */
    struct page *mapped;   /* the same page, until this process has its own page */
    struct young *young;   /* this process's entry in that page */
    uint32_t pid;          /* read at birth, so that settling needs no system call for it */
    uint64_t born, unused; /* ns; `unused`: the value of born, until children_birth() takes it */
} mine;
static struct page *own;    /* page that counts this process's children */
static struct page written; /* counts of `own` that have been written to the trace */

static uint64_t load(const uint64_t *p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void add(uint64_t *p, uint64_t n) {
    __atomic_fetch_add(p, n, __ATOMIC_ACQ_REL);
}

void children_open(void) {
    if (own) {
        written = *own;
        return;
    }
    /* In place of the parent's page, which a thread that is about to exec may still have in hand: it finds no entry of its process any more. */
    void *p = mmap(mine.mapped, sizeof *own, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | (mine.mapped ? MAP_FIXED : 0), -1, 0);
    mine.mapped = NULL;
    own = p == MAP_FAILED ? NULL : p;
    memset(&written, 0, sizeof written);
}

/* ---- the child ---- */

void children_born(void) {
    if (own) /* else the parent is itself a waiting child: both are counted in the same page */
        mine.page = mine.mapped = own;
    own = NULL;
    mine.young = NULL;
    mine.born = mine.unused = sys_now();
    mine.pid = (uint32_t)getpid();
    if (!mine.page)
        return;
    for (struct young *y = mine.page->young; y < mine.page->young + YOUNG && !mine.young; y++) {
        if (sys_swap(&y->pid, 0, UINT32_MAX))
            continue;
        __atomic_store_n(&y->born, mine.born, __ATOMIC_RELAXED);
        __atomic_store_n(&y->seen, mine.born, __ATOMIC_RELAXED);
        __atomic_store_n(&y->pid, mine.pid, __ATOMIC_RELEASE);
        mine.young = y;
    }
}

void children_seen(void) {
    if (mine.young)
        __atomic_store_n(&mine.young->seen, sys_now(), __ATOMIC_RELEASE);
}

void children_settle(enum children_end how) {
    struct page *p = __atomic_exchange_n(&mine.page, NULL, __ATOMIC_ACQ_REL);
    if (!p)
        return;
    if (mine.young && sys_swap(&mine.young->pid, mine.pid, 0) != mine.pid)
        return; /* the parent has given it up: a stopped process, perhaps */
    if (how == CHILDREN_ENDED || how == CHILDREN_FAILED) {
        add(&p->ns, sys_now() - mine.born);
        add(how == CHILDREN_ENDED ? &p->ended : &p->failed, 1);
    }
}

uint64_t children_birth(void) {
    uint64_t at = mine.unused;
    mine.unused = 0;
    return at;
}

/* ---- the parent ---- */

/* Returns the address where the process's stack begins, or 0 if unknown. A forked child has its parent's; after exec it differs. */
static uint64_t stack_of(pid_t pid) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    return proc_stat_number(path, 28);
}

/* Checks a child that has not been seen for a while. */
static void check_child(struct young *y, uint64_t now) {
    uint32_t pid = __atomic_load_n(&y->pid, __ATOMIC_ACQUIRE);
    uint64_t seen = load(&y->seen), born = load(&y->born);
    if (!pid || pid == UINT32_MAX || now < seen + LATE_NS)
        return;
    int lives = proc_is_running((pid_t)pid);
    uint64_t stack = lives ? stack_of((pid_t)pid) : 0;
    int young = stack && stack == stack_of(getpid());
    if (young) /* its service thread may not have been scheduled since */
        __atomic_store_n(&y->seen, sys_now(), __ATOMIC_RELEASE);
    if (lives && (young || now == UINT64_MAX || (!stack && now < seen + EXEC_NS)))
        return;
    if (sys_swap(&y->pid, pid, 0) == pid && !lives) { /* if it lives, it did an exec */
        add(&own->gone, 1);
        add(&own->ns, seen - born);
    }
}

static void write_round(struct writer *w, uint64_t now) {
    uint64_t period = settings_number(SETTING_sample_rate), ticks;
    if (!own)
        return;
    for (unsigned i = 0; i < YOUNG; i++)
        check_child(&own->young[i], now);
    struct page is = (struct page){.ended = load(&own->ended),
                                   .failed = load(&own->failed),
                                   .gone = load(&own->gone),
                                   .ns = load(&own->ns)};
    ticks = period ? is.ns / period - written.ns / period : 0; /* of the sum: keeps fractions */
    if (is.ended + is.failed + is.gone == written.ended + written.failed + written.gone)
        return;
    WRITER_EMIT(w, children, .ts = sys_now(), .ended = is.ended - written.ended,
                .failed = is.failed - written.failed, .gone = is.gone - written.gone,
                .ticks = ticks, .lived = is.ns - written.ns);
    written = is;
}

void children_round(struct writer *w, uint64_t now) {
    struct page *p = own;
    write_round(w, now);
    if (now != UINT64_MAX || !p)
        return;
    own = NULL; /* before the unmapping: a fork may happen even though the fork lock is held */
    munmap(p, sizeof *p);
}
