/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/children.h"

#include <stdio.h>

#include "agent/core/settings.h"

#define YOUNG   128        /* children at a time; of more only the sum is known */
#define LATE_NS 200000000u /* one that was not seen for so long (every 2 ms) is young no more */
#define EXEC_NS 2000000000u

struct page { /* all are (a) */
    uint64_t ended, failed, gone;
    uint64_t ns; /* that ended, failed and gone lived */
    struct young {
        uint32_t pid; /* 0: free */
        uint64_t born, seen;
    } young[YOUNG];
};

/* This process as a child. */
static struct {
    struct page *page;     /* the one that it is in, until it is settled */
    struct page *mapped;   /* the same, until this process has its own */
    struct young *young;   /* it, in that */
    uint32_t pid;          /* asked for at birth: when it is settled nothing may come in between */
    uint64_t born, unused; /* ns; `unused`: born, until it was asked for */
} mine;
static struct page *own;    /* of this process's children */
static struct page written; /* what the trace has of `own` */

static uint64_t load(const uint64_t *p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void add(uint64_t *p, uint64_t n) {
    __atomic_fetch_add(p, n, __ATOMIC_ACQ_REL);
}

void children_open(void) {
    if (mine.mapped)
        munmap(mine.mapped, sizeof *mine.mapped);
    mine.mapped = NULL;
    if (own) {
        written = *own;
        return;
    }
    void *p = mmap(NULL, sizeof *own, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    own = p == MAP_FAILED ? NULL : p;
    memset(&written, 0, sizeof written);
}

/* ---- the child ---- */

void children_born(void) {
    if (own) /* else the child of one that waits itself: its page is this one's */
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

/* Where the process's stack begins, which a forked child has of its parent and another program has not; 0: not known. */
static uint64_t stack_of(pid_t pid) {
    char path[32], text[1024], *field;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    proc_read_file(path, text, sizeof text);
    field = proc_stat_field(text, 28);
    return field ? strtoull(field, NULL, 10) : 0;
}

/* Looks after one that has not been seen for a while. */
static void check_child(struct young *y, uint64_t now) {
    uint32_t pid = __atomic_load_n(&y->pid, __ATOMIC_ACQUIRE);
    uint64_t seen = load(&y->seen), born = load(&y->born);
    if (!pid || pid == UINT32_MAX || now < seen + LATE_NS)
        return;
    int lives = proc_is_running((pid_t)pid);
    uint64_t stack = lives ? stack_of((pid_t)pid) : 0;
    int young = stack && stack == stack_of(getpid());
    if (young) /* its agent may have had no CPU since */
        __atomic_store_n(&y->seen, sys_now(), __ATOMIC_RELEASE);
    if (lives && (young || now == UINT64_MAX || (!stack && now < seen + EXEC_NS)))
        return;
    if (sys_swap(&y->pid, pid, 0) == pid && !lives) { /* else it has exec'ed, and we do not know */
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
    ticks =
        period ? is.ns / period - written.ns / period : 0; /* of all: a part of one is carried on */
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
    own = NULL; /* before the page goes: who forks does not wait for the fork lock for ever */
    munmap(p, sizeof *p);
}
