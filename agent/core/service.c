/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service.c - the service thread: opens the trace, drains the rings into it, takes the metrics, answers the
 * mailbox, and closes the trace when the recording ends. Only this thread uses the writer.
 */

#include "agent/base/fork_lock.h"
#include "agent/base/memory.h"
#include "agent/base/quiesce.h"
#include "agent/core/children.h"
#include "agent/core/meta.h"
#include "agent/core/part.h"
#include "agent/core/producer.h"
#include "agent/core/python.h"
#include "agent/core/report.h"
#include "agent/core/role.h"
#include "agent/core/rotation.h"
#include "agent/core/settings.h"
#include "agent/core/state.h"
#include "agent/core/threads.h"

#define SECOND        SYS_SECOND
#define FORK_STEP_MS  2
#define FORK_DELAY_MS 20 /* a forked child that execs or ends before that leaves no file */
#define TICK_NS       (SECOND / 4)
#define EARLY_TICK_NS (SECOND / 50) /* while Python starts, which takes some 20 ms */
#define CLOCK_NS      (10 * SECOND)
#define WAKERS_MS     2000
#define PASSIVE_RING  8192
#define PASSIVE_NS    (60 * SECOND) /* a passive agent ends after this time without a request */

struct service {
    struct agent *a;
    struct writer *w;
    struct live *live;
    struct agent_ranks ranks;
    struct agent_python python;
    struct rotation rotation;
    int python_known, version_told; /* Python is found, or not supported; is in the trace */
    int failed;                     /* the trace cannot be written any more */
    int asked;                      /* a client asked for the end through the mailbox */
    enum threads_left left;
    int status;        /* exit status of the process, when only our threads are left */
    uint64_t asked_at; /* when a request was last in progress (for a passive agent) */
    uint64_t started, next_metrics, next_clock, next_ranks;
};

/* ---- opening ---- */

/* Returns whether this process writes FILE itself, or -errno; if so, moves away the traces of an earlier run (run_take()). */
static int is_main(struct service *s) {
    struct agent *a = s->a;
    int joined = 0;
    if (!strcmp(a->how, "fork"))
        return 0;
    if (!a->config.first)
        return a->config.main_pid == (uint32_t)getpid();
    if (!a->config.trace_is_dir)
        joined = run_take(a->config.trace, sizeof a->config.trace, &s->ranks.id, leftover_of_trace,
                          &a->config);
    return joined < 0 ? joined : joined == RUN_FIRST;
}

static int open_writer(struct service *s) {
    struct agent *a = s->a;
    char host[65] = "", trace[CONFIG_PATH], base[CONFIG_PATH];
    struct writer_options opt = {.run_dir = a->config.run_dir, .xdg = a->config.xdg};
    int err = -EEXIST, main = 1;
    gethostname(host, sizeof host - 1);
    if (a->config.passive) {
        opt.nrings = 1;
        opt.ring_size = PASSIVE_RING;
        return writer_open(&s->w, &opt);
    }
    opt.trace_path = trace;
    for (uint64_t n = (uint64_t)settings_number(SETTING_torch_ring); n; n &= n - 1)
        opt.large_ring = n; /* rounded down to a power of two */
    strcpy(base, a->config.trace);
    for (unsigned n = 1, tries = 0; err == -EEXIST && main >= 0 && tries < RUN_TRIES; tries++) {
        if (main)
            strcpy(a->config.trace, base);
        main = main ? is_main(s) : 0; /* ask again: another process may have been quicker */
        n = main && a->config.first && !a->config.trace_is_dir ? 1 : n;
        err = main < 0
                  ? main
                  : run_trace_name(a->config.trace, a->config.trace_is_dir, host, s->ranks.rank,
                                   (unsigned)getpid(), main, n++, trace, sizeof trace);
        if (!err)
            err = writer_open(&s->w, &opt);
    }
    if (!err)
        rotation_open(&s->rotation, host, s->ranks.rank, trace, !strcmp(trace, a->config.trace));
    return err;
}

/* Writes the records about the process that every segment begins with. */
static void describe(struct service *s) {
    meta_process(s->w, &s->ranks, &s->python, s->a->how);
    meta_clock(s->w);
    settings_apply(s->w, 1);
    WRITER_EMIT(s->w, config, .ts = sys_now(), .key = value_text("probing.session"),
                .value = value_text(s->a->config.session));
}

static void write_beginning(struct service *s) {
    const struct agent_config *c = &s->a->config;
    describe(s);
    for (unsigned i = 0; i < c->ncomplaints; i++)
        meta_note(s->w, 1, "config", "%s", c->complaints[i]);
    writer_drain(s->w, WRITER_FLUSH);
}

static int open_recording(struct service *s) {
    struct agent *a = s->a;
    role_find(&s->ranks, &s->python, a->how);
    int err = open_writer(s);
    if (err)
        return err;
    s->live = writer_live(s->w);
    s->live->rank = s->ranks.rank;
    snprintf(s->live->run, sizeof s->live->run, "%s",
             s->ranks.id.job[0] ? s->ranks.id.job : s->ranks.id.run);
    meta_command(s->live->command, sizeof s->live->command);
    a->writer = s->w;
    quiesce_set(&agent_word.live, s->live);
    if (!a->config.passive) {
        /* No system call in between, so that a process that is killed either has a trace or is counted by its parent. */
        strcpy(s->live->how, a->how);
        children_settle(CHILDREN_RECORDED);
        write_beginning(s);
        producer_open(s->live);
        PARTS_CALL(open, s->w);
    }
    __atomic_store_n(&s->live->state, LIVE_RUNNING, __ATOMIC_RELEASE);
    return 0;
}

/* ---- what each round does ---- */

static void find_python(struct service *s) {
    struct agent_python found;
    int err = agent_python_find(&found, 0);
    s->python_known = err != -ENOENT && err != -EAGAIN;
    if (err == -EAGAIN && !s->version_told) /* not yet initialised, or already finalised */
        agent_python_find(&found, 1);
    if (s->python_known || (found.found.target.version && !s->version_told)) {
        s->python = found;
        meta_process(s->w, &s->ranks, &s->python, s->a->how); /* says more than the last one */
        s->version_told = 1;
    }
    if (!err)
        PARTS_CALL(python, &s->python);
}

static void take_ranks(struct service *s) {
    struct agent_ranks ranks;
    role_find(&ranks, &s->python, s->a->how); /* a forked worker's rank comes after its start */
    if (!memcmp(&ranks, &s->ranks, sizeof ranks))
        return;
    s->ranks = ranks;
    s->live->rank = ranks.rank;
    meta_process(s->w, &ranks, &s->python, s->a->how);
}

/* Looks for the rank and the role, more often in the first 30 s: a spawned DataLoader worker imports torch before its loop begins, and may not live for long. */
static void take_ranks_in_time(struct service *s, uint64_t now) {
    if (now < s->next_ranks)
        return;
    s->next_ranks = now + (now - s->started < 30 * SECOND ? SECOND / 5 : 5 * SECOND);
    take_ranks(s);
}

/* Returns whether *next has come, and moves it on by `every`, or to now + every when that is past: so a target that was stopped causes no burst. */
static int is_due(uint64_t *next, uint64_t every, uint64_t now) {
    if (!every || now < *next)
        return 0;
    *next += every;
    if (*next <= now)
        *next = now + every;
    return 1;
}

/* Stops the parts' own threads and signal handlers from writing. */
static void halt(struct service *s) {
    int busy = 0;
    PARTS_SUM(busy, halt);
    if (busy)
        writer_leave_live(s->w);
}

/* Ends recording because the trace cannot be written; the target goes on. */
static void give_up(struct service *s, int err) {
    s->failed = 1;
    __atomic_store_n(&s->live->write_error, -err, __ATOMIC_RELAXED);
    __atomic_store_n(&s->live->state, LIVE_FAILED, __ATOMIC_RELEASE);
    pthread_mutex_lock(&fork_lock.mutex);
    halt(s);
    pthread_mutex_unlock(&fork_lock.mutex);
}

static void do_round(struct service *s) {
    uint64_t now = sys_now();
    if (s->a->config.passive)
        return;
    int err = writer_drain(s->w, 0);
    if (err && !s->failed)
        give_up(s, err);
    if (s->failed)
        return;
    __atomic_store_n(&s->live->last_ts, now, __ATOMIC_RELAXED);
    settings_apply(s->w, 0);
    if (rotation_round(&s->rotation, s->w))
        describe(s);
    if (!s->python_known)
        find_python(s);
    if (is_due(&s->next_metrics, settings_number(SETTING_metrics), now))
        PARTS_CALL(metrics, s->w);
    if (is_due(&s->next_clock, CLOCK_NS, now))
        meta_clock(s->w);
    take_ranks_in_time(s, now);
    children_round(s->w, now);
    PARTS_CALL(round, s->w, now);
}

/* ---- the mailbox: handles each kind of request; kinds that are not handled here are offered to the parts ---- */

/* A request key=value changes a setting; the change has taken effect when the reply comes. An empty request asks for all settings. */
static void change_config(struct agent *a, struct live *l, const char *request, size_t len) {
    char text[SETTING_ENV + SETTING_TEXT_MAX], why[SETTING_WHY] = "", *value;
    if (!len) {
        static char all[LIVE_MAIL];
        live_mail_reply(l, 0, all, settings_json(all, sizeof all));
        return;
    }
    snprintf(text, sizeof text, "%.*s", (int)len, request);
    value = len < sizeof text ? strchr(text, '=') : NULL;
    if (!value) {
        live_mail_text(l, -EINVAL, len < sizeof text ? "want key=value" : "too long");
        return;
    }
    *value++ = 0;
    int err = settings_set(text, value, why, sizeof why);
    if (!err)
        settings_apply(a->writer, 0);
    live_mail_text(l, err ? -EINVAL : 0, why);
}

/* Answers the request in the mailbox. Returns 1 when the client asks for the end of the recording: then mailbox_stopped() replies. */
static int mailbox_serve(struct agent *a) {
    struct live *l = writer_live(a->writer);
    enum mail_kind kind;
    const char *request;
    size_t len;
    int taken = 0;
    a->asked = 0;
    PARTS_SUM(a->asked, attend, l);
    if (!live_mail_take(l, &kind, &request, &len))
        return 0;
    if (kind == MAIL_FLUSH) {
        PARTS_CALL(flush);
        int err = writer_drain(a->writer, WRITER_FLUSH);
        live_mail_text(l, err, err ? strerrordesc_np(-err) : "");
    } else if (kind == MAIL_CONFIG) {
        change_config(a, l, request, len);
    } else if (kind != MAIL_STOP) {
        PARTS_SUM(taken, request, l, kind, request, len);
        if (!taken)
            live_mail_text(l, -ENOTSUP, "unknown request");
    }
    return kind == MAIL_STOP;
}

/* Called when the recording has ended: answers the client that asked for the end (`asked`), or any client that waits. `l` is a mapping of the
 * live file that is still there. */
static void mailbox_stopped(struct live *l, int asked) {
    enum mail_kind kind;
    const char *request;
    size_t len;
    int open = 0;
    PARTS_SUM(open, ended, l);
    if (open)
        live_mail_text(l, -ESHUTDOWN, "the recording has ended");
    else if (asked)
        live_mail_text(l, 0, "");
    if (live_mail_take(l, &kind, &request, &len))
        live_mail_text(l, -ESHUTDOWN, "the recording has ended");
}

/* ---- the loop ---- */

static uint64_t time_to_wait(const struct service *s) {
    uint64_t now = sys_now(), wait = TICK_NS;
    if (s->left == THREADS_ENDING || s->left == THREADS_OTHERS)
        return s->left == THREADS_ENDING ? SECOND / 1000 : SECOND / 50;
    if (s->a->config.passive)
        return TICK_NS;
    if (!s->python_known && now - s->started < SECOND)
        wait = EARLY_TICK_NS;
    if (settings_number(SETTING_metrics) && !s->failed)
        wait = s->next_metrics <= now         ? 1
               : s->next_metrics - now < wait ? s->next_metrics - now
                                              : wait;
    for (const struct agent_part *const *p = agent_parts; *p; p++) {
        uint64_t want = (*p)->wait ? (*p)->wait(now) : UINT64_MAX;
        if (want < wait)
            wait = want;
    }
    return wait;
}

static int stop_asked(void) {
    return __atomic_load_n(&agent_word.stop, __ATOMIC_ACQUIRE) == AGENT_STOP_ASKED;
}

/* Returns whether a passive agent has had no request for PASSIVE_NS. */
static int is_idle(struct service *s) {
    uint64_t now = sys_now();
    if (s->a->asked || !s->a->config.passive)
        s->asked_at = now;
    return now - s->asked_at > PASSIVE_NS;
}

static void run(struct service *s) {
    uint64_t now = sys_now();
    s->started = s->asked_at = s->next_metrics = now;
    s->next_clock = now + CLOCK_NS;
    while (!stop_asked() && !is_idle(s)) {
        uint32_t wake = __atomic_load_n(&s->live->wake, __ATOMIC_ACQUIRE);
        do_round(s);
        s->asked = mailbox_serve(s->a);
        s->left = threads_left(&s->status);
        if (s->asked || s->left == THREADS_OURS)
            break;
        if (!stop_asked())
            sys_wait(&s->live->wake, wake, sys_now() + time_to_wait(s));
    }
}

/* ---- closing ---- */

/* After this, no other thread uses the live file's mapping; if that cannot be ensured, the file stays mapped. */
static void withdraw_live(struct service *s) {
    int ms = WAKERS_MS;
    producer_close();
    quiesce_set(&agent_word.live, NULL);
    if (producer_wait(WAKERS_MS) || quiesce_wait(&agent_word.wakers, &ms))
        writer_leave_live(s->w);
}

static void close_recording(struct service *s) {
    struct agent *a = s->a;
    struct live *after = NULL; /* a second mapping, which outlasts the writer's: for the reply */
    const char *reason = s->failed                 ? "disk"
                         : s->asked                ? "stop"
                         : s->left == THREADS_OURS ? "exit"
                                                   : agent_word.reason;
    if (!s->failed)
        __atomic_store_n(&s->live->state, LIVE_STOPPING, __ATOMIC_RELEASE);
    if (!s->failed && !a->config.passive)
        settings_apply(s->w, 0); /* record a change that was made just before the end */
    int stays = strcmp(reason, "exit") && strcmp(reason, "_exit");
    if (!a->config.passive)
        PARTS_CALL(quit, s->failed ? NULL : s->w, stays);
    withdraw_live(s);
    pthread_mutex_lock(&fork_lock.mutex);
    halt(s);
    if (!s->failed && !a->config.passive) {
        if (!s->python_known)
            find_python(s);
        if (settings_number(SETTING_metrics))
            PARTS_CALL(metrics, s->w);
        PARTS_CALL(close, s->w);
        children_round(s->w, UINT64_MAX);
        take_ranks(s);
        meta_clock(s->w);
    }
    char code[16];
    snprintf(code, sizeof code, "%d", agent_word.status & 0xff);
    if (reason == agent_word.reason && agent_word.status >= 0)
        WRITER_EMIT(s->w, fact, .ts = sys_now(), .kind = value_text("end"),
                    .key = value_text("exit_code"), .value = value_text(code));
    if (live_open(&after, writer_live_path(s->w), 1))
        after = NULL;
    a->writer = NULL;
    writer_close(s->w, reason);
    PARTS_CALL(free);
    a->wanted = 0;
    pthread_mutex_unlock(&fork_lock.mutex);
    if (stays && !a->config.passive)
        PARTS_CALL(leave);
    if (after) {
        __atomic_store_n(&after->state, LIVE_STOPPED, __ATOMIC_RELEASE);
        mailbox_stopped(after, s->asked);
        live_close(after);
    }
}

void *service_main(void *unused UNUSED) {
    struct service s = {.a = &probing_agent};
    struct agent *a = s.a;
    struct threads_starter starter;
    int err, split, ms;
    for (ms = 0;
         ms < FORK_DELAY_MS && agent_wait_phase(AGENT_WAITING, FORK_STEP_MS) == AGENT_WAITING;
         ms += sys_clock(CLOCK_PROCESS_CPUTIME_ID) < FORK_DELAY_MS * SYS_MS ? FORK_STEP_MS
                                                                            : FORK_DELAY_MS)
        children_seen();
    sys_swap(&agent_word.phase, AGENT_WAITING, AGENT_STARTING);
    if (__atomic_load_n(&agent_word.phase, __ATOMIC_ACQUIRE) != AGENT_STARTING)
        return NULL;
    /* Not where memory is read through a file descriptor, which the program's threads use, too. */
    split = !memory_init() && !memory_uses_file() && !threads_split_files(&starter);
    if (ms && threads_left(&s.status) == THREADS_OURS) { /* after the split: it opens a file */
        children_settle(CHILDREN_ENDED);
        threads_exit(s.status);
    }
    pthread_mutex_lock(&fork_lock.mutex);
    err = open_recording(&s);
    if (!err)
        a->wanted = !a->config.passive;
    pthread_mutex_unlock(&fork_lock.mutex);
    if (err) {
        char to[64] = "";
        children_settle(CHILDREN_FAILED);
        config_env("PROBING_REPORT", to, sizeof to);
        report(to, "cannot make its trace or live file", a->config.trace, strerrordesc_np(-err));
        agent_word.error = err;
        agent_set_phase(AGENT_STOPPED);
        goto out;
    }
    if (a->wanted)
        children_open();
    agent_set_phase(AGENT_RUNNING);
    if (!strcmp(a->how, "preload") || !strcmp(a->how, "python"))
        leftover_finish(s.live, writer_live_path(s.w));
    run(&s);
    if (s.left == THREADS_OURS && WIFSIGNALED(s.status)) /* its trace is that of a killed process */
        threads_exit(s.status);
    agent_set_phase(AGENT_STOPPING);
    close_recording(&s);
    agent_set_phase(AGENT_STOPPED);
    /* Another thread of the agent may wait for the GIL for ever: then this thread must end the process when the program's threads have ended. */
    for (ms = 1; s.left != THREADS_OURS && threads_count() > 1 + split &&
                 agent_wait_phase(AGENT_STOPPED, ms) == AGENT_STOPPED;
         ms = ms < 250 ? 2 * ms : ms)
        s.left = threads_left(&s.status);
    if (s.left == THREADS_OURS)
        threads_exit(s.status);
out:
    if (split)
        threads_join_starter(&starter);
    return NULL;
}
