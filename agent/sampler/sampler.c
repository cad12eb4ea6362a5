/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/sampler.h"

#include <sys/prctl.h>

#include "agent/core/children.h"
#include "agent/core/meta.h"
#include "agent/core/part.h"
#include "agent/core/settings.h"
#include "agent/core/threads.h"
#include "agent/sampler/sampler_threads.h"

#define MS              SYS_MS
#define STACK_SIZE      (512u << 10)
#define PERIOD_MIN      (MS / 10)
#define LIST_EVERY      (10 * MS)  /* interval of the search for new threads */
#define LIST_WHOLE      (100 * MS) /* the same for ended ones, and new ones of older interpreters */
#define FLUSH_EVERY     (1000 * MS)
#define RENAME_EVERY    (3000 * MS)
#define MODULES_EVERY   (1000 * MS)
#define MODULES_SOON    (20 * MS) /* after a program counter in no known module */
#define WAKE_EVERY      (20 * MS)
#define STOP_WAIT_MS    2000
#define FLUSH_MS        100 /* longest wait for the sampler thread's answer */
#define HANDLER_WAIT_MS 1000
#define NICE            (-10)
#define SLICE           (MS / 10)
#define LATE_MAX        (200 * MS) /* longest run of ticks for one sample */
#define RECHECK         (20 * MS) /* from this period on, signals are rechecked soon after a tick */
#define GOLDEN          0x9e3779b97f4a7c15 /* the golden ratio, in 2^-64 */
#define TORN_TRIES      100        /* invalid readings in a row allowed: Python may be changing */
#define ENDED           UINT32_MAX /* value of `burst_done` when the thread has ended */

struct sampler {
    struct live *live;
    pthread_t thread;
    uint32_t stop;              /* (a) */
    uint32_t kick;              /* (a) futex: changes when `stop` or `burst` does */
    uint32_t burst, burst_done; /* (a) bursts asked for, and done (futex) */
    uint32_t burst_except;
    uint64_t burst_tick; /* 0: take no stacks, only write the idle threads' pending samples */
    int sampling;        /* Python is initialised, and its threads are sampled */
    int unlisted;        /* number of failed listings of threads in a row */
    uint64_t cpu_ns;     /* (a) */
    struct sampler_table table;
    uint64_t listed, listed_whole, flushed, renamed, modules, woken;
    uint64_t covered; /* ns: ticks up to this time are accounted for; 0: start now */
    uint64_t since;   /* (a) ns: when the service thread found Python; 0: not yet, or sampling */
    uint64_t asleep;  /* number of ticks in a row that found every thread asleep */
    uint64_t place;   /* of the sample within its ticks, in 2^-64 of them */
    uint64_t stays;   /* for so many ticks more */
    int nice;
};

static const char too_short[] = "it ended before the first tick";
static const char *unsampled; /* (a) why nothing has been sampled so far */

static void set_unsampled(const char *why) {
    __atomic_store_n(&unsampled, why, __ATOMIC_RELAXED);
}

static uint64_t period_of(const struct sampler *s) {
    return __atomic_load_n(&s->live->period_ns, __ATOMIC_RELAXED);
}

static void burst_if_asked(struct sampler *s) {
    uint32_t asked = __atomic_load_n(&s->burst, __ATOMIC_ACQUIRE);
    if (asked == s->burst_done)
        return;
    if (s->sampling && s->burst_tick == 0)
        sampler_threads_flush(&s->table);
    else if (s->sampling && sampler_threads_list(&s->table, sys_now()) != -EAGAIN)
        sampler_threads_burst(&s->table, s->burst_tick, s->burst_except);
    __atomic_store_n(&s->burst_done, asked, __ATOMIC_RELEASE);
    sys_wake(&s->burst_done);
}

/* Sleeps until `when`; takes bursts meanwhile. Returns 1 when the thread is to stop. */
static int sleep_until(struct sampler *s, uint64_t when) {
    for (;;) {
        uint32_t kicked = __atomic_load_n(&s->kick, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE))
            return 1;
        burst_if_asked(s);
        if (sys_wait(&s->kick, kicked, when))
            return 0;
    }
}

/* Returns whether thread CPU clocks have a resolution of microseconds: in some sandboxes they count scheduler
 * ticks. Reads our own clock so often that this takes 1 to 2 ms of CPU time, however long it waits for a CPU. */
static int clocks_are_fine(void) {
    uint64_t last = sys_clock(CLOCK_THREAD_CPUTIME_ID);
    unsigned steps = 0;
    for (unsigned n = 0; n < 4000 && steps < 8; n++) {
        uint64_t c = sys_clock(CLOCK_THREAD_CPUTIME_ID);
        if (c != last && c - last < MS / 5)
            steps++;
        last = c;
    }
    return steps >= 8;
}

/* Waits until Python is initialised. Returns 0; 1 when the thread is to stop; -errno when there will be no sampling. */
static int wait_for_python(struct sampler *s, struct agent_python *py) {
    uint64_t due = __atomic_load_n(&s->since, __ATOMIC_RELAXED);
    for (uint64_t step = 2 * MS;; step = step < 100 * MS ? step + step / 4 : step) {
        int rc = agent_python_find(py, 0);
        if (rc == 0 && !s->covered) /* ticks since then count as missed: we had no CPU */
            s->covered = due;
        if (rc != -EAGAIN && rc != -ENOENT)
            return rc;
        due = sys_now() + step;
        if (sleep_until(s, due))
            return 1;
    }
}

static void wake_drain(struct sampler *s, uint64_t now) {
    struct sampler_table *st = &s->table;
    int full = ring_used(st->ring) > st->ring->size / 2;
    if (now - s->woken < WAKE_EVERY)
        return;
    for (uint32_t i = 0; i < st->n && !full; i++) {
        struct ring *r = st->thread[i].request->ring;
        full = r && ring_used(r) > r->size / 2;
    }
    if (!full)
        return;
    s->woken = now;
    sys_kick(&s->live->wake);
}

/* Does the work that is due at longer intervals. Returns -EAGAIN when Python is gone. */
static int upkeep(struct sampler *s, uint64_t now) {
    struct sampler_table *st = &s->table;
    int rc = 0;
    if (now - s->listed >= LIST_EVERY) {
        /* Not at every tick, because it is a system call (1 us). */
        __atomic_store_n(&s->cpu_ns, sys_clock(CLOCK_THREAD_CPUTIME_ID), __ATOMIC_RELAXED);
        int whole = now - s->listed_whole >= LIST_WHOLE;
        rc = whole ? sampler_threads_list(st, now) : sampler_threads_list_if_new(st, now);
        if (rc == -EAGAIN)
            return rc;
        if (rc == 0) /* else the list was changing: try again at the next tick */
            s->listed = now, s->listed_whole = whole ? now : s->listed_whole;
        else /* the program may have closed the file through which memory is read */
            memory_init();
        s->unlisted = rc ? s->unlisted + 1 : 0;
        if (s->unlisted == TORN_TRIES)
            sampler_threads_note(st, now, 1, "the list of threads cannot be read: no new ones");
        __atomic_store_n(&s->live->threads, st->n, __ATOMIC_RELAXED);
    }
    int missed = __atomic_load_n(&st->unwind.map.missed, __ATOMIC_RELAXED);
    if (__atomic_load_n(&s->live->native, __ATOMIC_RELAXED) &&
        now - s->modules >= (missed ? MODULES_SOON : MODULES_EVERY)) {
        sampler_threads_modules(st);
        s->modules = now;
        if (handler_wait(0) == 0)
            modmap_reclaim(&st->unwind.map);
    }
    if (now - s->flushed >= FLUSH_EVERY) {
        sampler_threads_flush(st);
        s->flushed = now;
    }
    if (now - s->renamed >= RENAME_EVERY ||
        st->segment != __atomic_load_n(&s->live->segment, __ATOMIC_RELAXED)) {
        sampler_threads_rename(st, now);
        s->renamed = now;
    }
    return 0;
}

/*
 * Plans the next sample, for ticks from `first` on. At exact intervals, a loop whose duration divides the period would always be seen at the same place. So
 * every 2 to 5 ticks the sample moves within its tick by the golden ratio, whose multiples are spread evenly; the intervals in between are equal, and take few
 * bytes. While the whole process sleeps, one sample, at a random time, stands for several ticks: else each of a DataLoader's workers, asleep nine tenths of the
 * time, would wake a CPU of the training a thousand times a second. Where the last sample came late, one stands for longer still: else the samplers of many
 * sleeping processes would leave no CPU to those that work.
 */
static struct tick plan(struct sampler *s, uint64_t first, uint64_t period, uint64_t missed) {
    uint64_t late = 8 * missed * period < LATE_MAX ? 8 * missed * period : LATE_MAX;
    /* Back off sooner than for a single thread: that saves a system call, this saves a wake-up. */
    uint64_t span = backoff_ticks(2 * s->asleep, period, late > BACKOFF_MAX ? late : BACKOFF_MAX);
    uint64_t last = first + (span - 1) * period;
    /* What the last sample saw decides on the span: the place in one of several ticks must not depend on the last one's. */
    if (span > 1 || !s->place) {
        s->place = known_mix(s->place, first);
        s->stays = 0;
    } else if (s->stays-- == 0) {
        s->place += GOLDEN;
        s->stays = 1 + known_mix(s->place, first) % 4;
    }
    uint64_t early = (uint64_t)((unsigned __int128)s->place * (span * period) >> 64);
    return (struct tick){last - early, last, span, missed};
}

/* In a forked child, returns the time from which ticks count as missed: the fork's, less a random part of a period, so that a short life has its share. Else 0. */
static uint64_t since_fork(const struct sampler *s) {
    uint64_t period = period_of(s);
    uint64_t born = children_birth();
    return born && period ? born - known_mix(born, (uint64_t)getpid()) % period : 0;
}

/* At the end: counts the ticks since the last sample as lost, for each thread that was not asleep. */
static void lose_last(struct sampler *s) {
    uint64_t period = period_of(s), n = s->table.n == 0;
    uint64_t from = s->covered ? s->covered : __atomic_load_n(&s->since, __ATOMIC_RELAXED);
    if (!period || !from || s->asleep)
        return;
    for (uint32_t i = 0; i < s->table.n; i++)
        n += s->table.thread[i].backoff.asleep == 0;
    uint64_t now = sys_now();
    if (now > from)
        live_lose(s->live, TRACE_LOST_missed_tick, (now - from) / period * n);
}

/*
 * Ticks should come on time, also where every CPU is busy: a thread that asks for short slices gets its CPU sooner (Linux 6.12; ignored before), and so does
 * one of higher priority (refused without the privilege). A shorter slice takes nothing away from the target. Priority does, where it has little CPU and many
 * processes: see plan().
 */
static void come_on_time(struct sampler *s, int nice) {
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {.size = sizeof attr, .nice = nice, .runtime = SLICE};
    if (nice == s->nice)
        return;
    s->nice = nice;
    while (syscall(SYS_sched_setattr, 0, &attr, 0) && attr.nice)
        attr.nice = 0;
}

/* Samples until the thread is to stop (returns 1) or Python ends (returns -EAGAIN). */
static int sample(struct sampler *s) {
    struct sampler_table *st = &s->table;
    uint64_t next = s->covered ? s->covered : sys_now();
    st->since = next;
    sampler_threads_list(st, sys_now()); /* now: it reads the threads' CPU clocks */
    for (;;) {
        s->covered = next;
        uint64_t period = period_of(s);
        if (period == 0) { /* paused: check again soon */
            sampler_threads_flush(st);
            sampler_threads_set_period(st, 0);
            next = sys_now() + 100 * MS;
            if (sleep_until(s, next))
                return 1;
            continue;
        }
        if (period < PERIOD_MIN)
            period = PERIOD_MIN;
        sampler_threads_set_period(st, period);
        next += period;
        /* Missed: we were kept from running, and those ticks are gone. */
        uint64_t now = sys_now(), missed = now > next + period ? (now - next) / period : 0;
        next += missed * period;
        struct tick tick = plan(s, next, period, missed);
        /* A long period may be shortened meanwhile: sleep in pieces. */
        for (; now + 500 * MS < tick.at && period_of(s) == period; now = sys_now())
            if (sleep_until(s, now + 500 * MS))
                return 1;
        if (period_of(s) != period) {
            next = now;
            continue;
        }
        if (sleep_until(s, tick.at))
            return 1;
        int rc = upkeep(s, tick.at), unseen = !st->n && s->unlisted;
        if (rc || unseen) /* Python has ended, or its threads cannot be listed */
            live_lose(s->live, TRACE_LOST_missed_tick, tick.missed + (rc ? 0 : tick.span));
        if (rc)
            return rc;
        tick.at -= tick.at % 1000;
        if (st->dict.owners_in != st->dict.owners_out) {
            pywalk_pages_forget(&st->pages);
            capture_names(&st->dict, st->ring);
        }
        s->asleep = sampler_threads_tick(st, &tick) || unseen ? 0 : s->asleep + tick.span;
        come_on_time(s, !s->asleep ? NICE : tick.missed ? 0 : s->nice);
        set_unsampled(st->n ? "every tick was lost" : "no thread of Python's was found");
        __atomic_store_n(&s->live->last_ts, tick.at, __ATOMIC_RELAXED);
        wake_drain(s, tick.at);
        if (period >= RECHECK && sampler_threads_waiting(st, 0)) {
            if (sleep_until(s, tick.at + MS))
                return 1;
            sampler_threads_recheck(st);
        }
        next = tick.last;
    }
}

static void prepare_thread(struct sampler_table *st) {
    prctl(PR_SET_TIMERSLACK, 1);
    st->private_files = !memory_uses_file() && threads_own_files() == 0;
    st->coarse = !clocks_are_fine();
    if (st->coarse)
        sampler_threads_note(
            st, sys_now(), 1,
            "thread CPU clocks are coarse here: idle threads are found by /proc instead");
}

static const char *complaint(int rc) {
    return rc == -ENOTSUP
               ? "this Python is not supported (free-threaded, or not known): no stacks are sampled"
           : rc == -EBUSY ? "no signal is free: no stacks are sampled"
                          : "Python's structures make no sense: no stacks are sampled";
}

static void *run(void *arg) {
    struct sampler *s = arg;
    struct sampler_table *st = &s->table;
    int rc = memory_init(), torn = 0;
    if (!rc)
        rc = sampler_threads_init(st, s->live, (uint32_t)gettid());
    if (rc)
        goto out;
    set_unsampled("whenever the sampler looked, Python was not initialised");
    come_on_time(s, NICE);
    prepare_thread(st);
    s->covered = since_fork(s);
    do {
        struct agent_python py;
        rc = wait_for_python(s, &py);
        if (rc == 0) {
            rc = sampler_threads_attach(st, &py);
            set_unsampled(rc ? "Python's structures could not be read" : too_short);
        }
        if (rc == 0 && __atomic_load_n(&s->stop, __ATOMIC_ACQUIRE))
            rc = 1; /* attaching takes long where libraries are large */
        if (rc == 0)
            rc = handler_arm(&st->handler);
        torn = rc == -EBADMSG ? torn + 1 : 0;
        if (rc < 0 && rc != -EAGAIN && rc != -EFAULT && (!torn || torn > TORN_TRIES)) {
            sampler_threads_note(st, sys_now(), 2, complaint(rc));
            set_unsampled(NULL);
            break;
        }
        s->sampling = rc == 0;
        if (rc == 0)
            rc = sample(s);
        if (rc == 1)
            lose_last(s);
        if (s->sampling) { /* else Python could not be read: its ticks go on counting as missed */
            s->covered = 0;
            __atomic_store_n(&s->since, 0, __ATOMIC_RELAXED);
        }
        s->sampling = 0;
        __atomic_store_n(&s->live->threads, 0, __ATOMIC_RELAXED);
        sampler_threads_end(st);
        if (rc < 0 && sleep_until(s, sys_now() + 20 * MS)) {
            lose_last(s);
            rc = 1;
        }
    } while (rc != 1); /* after Py_Finalize there may be a Py_Initialize */
    __atomic_store_n(&s->cpu_ns, sys_clock(CLOCK_THREAD_CPUTIME_ID), __ATOMIC_RELAXED);
out:
    __atomic_store_n(&s->burst_done, ENDED, __ATOMIC_RELEASE);
    sys_wake(&s->burst_done);
    return NULL;
}

/* ---- the part ---- */

static struct sampler *current; /* (a) sampler of the recording in progress */
static struct live *live;
static uint64_t cpu; /* CPU time of the last sampler's thread, ns: needed after its end, too */

static void settings_changed(void) {
    __atomic_store_n(&live->period_ns, settings_number(SETTING_sample_rate), __ATOMIC_RELEASE);
    __atomic_store_n(&live->native, (uint32_t)settings_number(SETTING_native), __ATOMIC_RELEASE);
}

static void begin(struct writer *w) {
    struct sampler *s = sys_pages(sizeof *s);
    live = writer_live(w);
    cpu = 0;
    set_unsampled("the sampler had no CPU, no ring, or no way to read memory");
    settings_changed();
    settings_watch(SETTING_sample_rate, settings_changed);
    settings_watch(SETTING_native, settings_changed);
    if (s)
        s->live = live;
    int rc = s ? thread_spawn(&s->thread, "probing-smp", STACK_SIZE, run, s) : -ENOMEM;
    if (rc) {
        meta_note(w, 2, "sampler", "not started: %s", strerrordesc_np(-rc));
        sys_pages_free(s, sizeof *s);
        s = NULL;
    }
    __atomic_store_n(&current, s, __ATOMIC_RELEASE);
}

static void python(const struct agent_python *py UNUSED) {
    if (current)
        __atomic_store_n(&current->since, sys_now(), __ATOMIC_RELAXED);
}

/* Returns the sampler thread's CPU time, which may be 10 ms or one period old. */
static uint64_t cpu_ns(void) {
    if (current)
        cpu = __atomic_load_n(&current->cpu_ns, __ATOMIC_RELAXED);
    return cpu;
}

/* Waits until the sampler thread has done a burst, or has ended. Returns the last value of `burst_done`. */
static uint32_t wait_burst(struct sampler *s, uint32_t burst, int timeout_ms) {
    uint64_t end = sys_now() + (uint64_t)timeout_ms * MS;
    uint32_t done;
    while ((done = __atomic_load_n(&s->burst_done, __ATOMIC_ACQUIRE)) != burst && done != ENDED &&
           !sys_wait(&s->burst_done, done, end))
        ;
    return done;
}

/* Ends the sampler thread, which first writes its pending samples, and disarms the handler. */
static int halt(void) {
    struct sampler *s = current;
    if (!s)
        return 0;
    cpu_ns();
    __atomic_store_n(&current, NULL, __ATOMIC_RELEASE);
    __atomic_store_n(&s->stop, 1, __ATOMIC_RELEASE);
    sys_kick(&s->kick);
    int joined = wait_burst(s, ENDED, STOP_WAIT_MS) == ENDED && !pthread_join(s->thread, NULL);
    handler_disarm();
    if (!joined)
        lose_last(s);
    /* A handler may still run, in a thread that has lost its CPU: the memory that it uses must stay. */
    if (handler_wait(HANDLER_WAIT_MS) || !joined)
        return -EBUSY;
    handler_uninstall();
    sampler_threads_free(&s->table);
    sys_pages_free(s, sizeof *s);
    return 0;
}

/* Notes in the trace why a recording has no sample. */
static void explain(struct writer *w) {
    if (unsampled && live->period_ns && !live->samples)
        meta_note(w, unsampled != too_short, "sampler", "nothing was sampled: %s", unsampled);
}

static void child(void) {
    handler_after_fork();
    current = NULL; /* the memory is left to leak */
}

int sampler_burst(uint64_t tick, uint32_t except, int timeout_ms) {
    struct sampler *s = current;
    if (!s)
        return -ESRCH;
    uint32_t asked = __atomic_load_n(&s->burst, __ATOMIC_RELAXED) + 1;
    s->burst_tick = tick;
    s->burst_except = except;
    __atomic_store_n(&s->burst, asked, __ATOMIC_RELEASE);
    sys_kick(&s->kick);
    uint32_t done = wait_burst(s, asked, timeout_ms);
    return done == asked ? 0 : done == ENDED ? -ESRCH : -ETIMEDOUT;
}

static void flush(void) {
    sampler_burst(0, 0, FLUSH_MS);
}

const struct agent_part sampler_part = {
    .open = begin,
    .python = python,
    .flush = flush,
    .halt = halt,
    .close = explain,
    .child = child,
    .cpu_ns = cpu_ns,
};
