/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect_inject(): looks first (preflight.h), lays the files ready (stage.h), then stops the process for moments of
 * about a millisecond until no thread is inside malloc, the loader and the like (safety.h), and in that
 * moment lets one thread call dlopen on the stub (call.h). The stub only starts a thread, which loads the
 * agent when the process runs again.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agentfile.h"
#include "call.h"
#include "inspect.h"
#include "native.h"
#include "preflight.h"
#include "safety.h"
#include "say.h"
#include "stage.h"
#include "text.h"

#define TRY_NS       2000000000u /* how long a safe moment is looked for */
#define CALL_MS      1000        /* dlopen alone, all others standing still */
#define CALL_MORE_MS 5000        /* then with all others running */
#define WAIT_NS      3000000000u /* for the agent to come up */
#define STACK_ROOM   32768       /* dlopen needs less; below that the thread is not asked */

struct inject {
    pid_t pid;
    unsigned flags;
    int passive; /* wanted only to be asked */
    struct proc_maps maps;
    struct preflight pre;
    struct stage stage;
    struct native *native;
    uint64_t stamp; /* of the mappings that `native` knows */
    struct native_frame *frames;
    struct native_name *names;
    uint64_t stood_ns; /* in all */
    int stood_before;  /* and longer, unknown how long */
    unsigned stops;
    char why[256]; /* what stood against the last moment */
};

static uint64_t maps_stamp(const struct proc_maps *m) {
    uint64_t h = m->n;

    for (size_t i = 0; i < m->n; i++) {
        if (m->v[i].perms[2] == 'x')
            h = (h ^ m->v[i].start ^ m->v[i].end << 7 ^ m->v[i].inode << 13) * 0x100000001b3u;
    }
    return h;
}

static int reread_maps(struct inject *in) {
    int rc;

    proc_maps_free(&in->maps);
    rc = proc_maps_read(in->pid, &in->maps);
    return rc == -ENOENT || (rc == 0 && in->maps.n == 0) ? -ESRCH : rc; /* none: a zombie */
}

/* Before each stop: mappings and unwinder know what is loaded now. */
static int refresh(struct inject *in) {
    uint64_t stamp;
    int rc = reread_maps(in);

    if (rc < 0)
        return rc;
    stamp = maps_stamp(&in->maps);
    if (in->native && stamp == in->stamp)
        return 0;
    native_close(in->native);
    in->native = NULL;
    in->stamp = stamp;
    return native_open(&in->native, in->pid, 0);
}

static int has_room(const struct inject *in, uint64_t sp) {
    const struct proc_map *m = proc_maps_at(&in->maps, sp);

    return m && m->perms[1] == 'w' &&
           (sp - m->start >= STACK_ROOM || strcmp(m->path, "[stack]") == 0);
}

static int blocked(const struct user_regs_struct *r) {
    long nr = (long)r->orig_rax, ret = (long)r->rax;

    return nr >= 0 && ret <= -512 && ret >= -516;
}

/* Looks at every thread. 0 with *carrier, or -EAGAIN: not now, in->why says what for. */
static int choose(struct inject *in, struct stop *s, size_t *carrier) {
    int best = 0;

    snprintf(in->why, sizeof in->why, "no thread that could make the call");
    for (size_t i = 0; i < s->n; i++) {
        int complete, n = native_stack(in->native, s, i, in->frames, NATIVE_MAX, &complete), score;
        const char *why;
        char buf[128];

        for (int k = 0; k < n; k++)
            native_name(in->native, &in->frames[k], &in->names[k]);
        why = safety_stack(in->names, (size_t)n, buf, sizeof buf);
        if (why) {
            snprintf(in->why, sizeof in->why, "thread %d is %s", s->v[i].tid, why);
            return -EAGAIN;
        }
        if (s->v[i].signal || safety_carrier(in->names, (size_t)n, complete) ||
            !has_room(in, s->v[i].regs.rsp))
            continue;
        /* Best: asleep in the kernel. Then: in the program's own code. */
        score = blocked(&s->v[i].regs) ? 3 : strncmp(in->names[0].module, "libc", 4) ? 2 : 1;
        if (score > best) {
            best = score;
            *carrier = i;
        }
    }
    return best ? 0 : -EAGAIN;
}

/* What dlerror() of the target says. */
static void load_error(struct inject *in, struct call *c, char *buf, size_t n) {
    uint64_t at = 0;

    snprintf(buf, n, "no reason given");
    if (in->pre.dlerror && call_function(c, in->pre.dlerror, 0, 0, CALL_MS, &at) == 0 && at) {
        for (size_t len = n - 1; len > 0; len /= 2) { /* it may end near unreadable memory */
            if (proc_read(in->pid, at, buf, len) == 0) {
                buf[len] = 0;
                break;
            }
        }
    }
}

/* Process stopped, thread chosen: dlopen. */
static int load(struct inject *in, struct stop *s, size_t carrier, char **why) {
    struct call *c = malloc(sizeof *c);
    uint64_t path, handle = 0, errno_at = 0;
    char text[512];
    int rc, saved = 0;

    if (!c)
        return -ENOMEM;
    rc = call_begin(c, s, carrier, in->pre.trap);
    if (rc < 0) {
        free(c);
        return rc;
    }
    /* The thread may be between setting errno and reading it. */
    if (in->pre.errno_location &&
        (call_function(c, in->pre.errno_location, 0, 0, 200, &errno_at) < 0 ||
         proc_read(in->pid, errno_at, &saved, sizeof saved) < 0))
        errno_at = 0;
    rc = call_string(c, in->stage.lib, &path);
    if (rc == 0)
        rc = call_function(c, in->pre.dlopen, path, in->pre.dlopen_flags, CALL_MS, &handle);
    if (rc == -ETIMEDOUT) {
        /* It waits for something that a stopped thread holds. With the others running this is a dlopen like
         * any other, and ends like any other. */
        stop_release_others(s, carrier);
        rc = call_function(c, 0, 0, 0, CALL_MORE_MS, &handle);
    }
    if (rc == 0 && handle == 0) {
        load_error(in, c, text, sizeof text);
        rc = -ELIBACC;
    }
    if (errno_at)
        call_write(c, errno_at, &saved, sizeof saved);
    if (call_end(c) < 0)
        rc = -ESRCH; /* it has been killed */
    if (rc == -ELIBACC)
        *why = say("process %d cannot load the agent: %s", in->pid, text);
    else if (rc == -EFAULT)
        *why = say("dlopen crashed in process %d; the thread has been put back as it was", in->pid);
    else if (rc == -ETIMEDOUT)
        *why = say("dlopen did not return in process %d; the thread has been put back as it was",
                   in->pid);
    free(c);
    return rc;
}

static int attempt_here(struct inject *in, char **why) {
    size_t carrier = 0;
    struct stop s = {.pid = in->pid};
    int rc = stop_seize(&s, in->pid, 500);

    if (rc == -ETIMEDOUT) { /* it may be over soon: a vfork, a write to a disk */
        snprintf(in->why, sizeof in->why, "thread %d is in an uninterruptible system call",
                 s.stuck);
        return -EAGAIN;
    }
    if (rc < 0) {
        *why = say_stop(in->pid, rc, &s);
        return rc;
    }
    rc = choose(in, &s, &carrier);
    if (rc == 0)
        rc = load(in, &s, carrier, why);
    in->stood_ns += stop_release(&s);
    in->stops++;
    return rc;
}

static int attempt(struct inject *in, char **why) {
    int rc = refresh(in);
    sigset_t all, before;

    if (rc < 0)
        return rc;
    /* If we died in the middle of the call, the thread would go on with nobody to put it back: a signal that would
     * end us waits for these milliseconds. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = attempt_here(in, why);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

/* Moments until one is safe. */
static int find_moment(struct inject *in, char **why) {
    uint64_t deadline = proc_now() + TRY_NS;
    unsigned pause_us = 1000;
    int rc;

    while ((rc = attempt(in, why)) == -EAGAIN) {
        if (proc_now() > deadline) {
            *why = say("no safe moment in %u tries: %s; nothing was done to process %d, try again",
                       in->stops, in->why, in->pid);
            break;
        }
        proc_sleep_us(pause_us);
        pause_us =
            pause_us * 3 % 4999 + 500; /* irregular: not in step with a loop of the target's */
    }
    if (rc == -ESRCH && !*why)
        *why = say("process %d ended just now", in->pid);
    else if (rc < 0 && !*why)
        *why = say("cannot inject into process %d: %s", in->pid, strerror(-rc));
    return rc;
}

/* The agent comes up in its own thread: waits for its live file to say so. */
static int wait_agent(struct inject *in, struct live **l, char **why) {
    uint64_t deadline = proc_now() + WAIT_NS;
    char text[512] = "";
    uint32_t state;
    int status = 0;

    *l = NULL;
    while (proc_now() < deadline) {
        if (status == 0)
            status = stage_status(&in->stage, text, sizeof text);
        if (status < 0) {
            *why = say("the agent did not start in process %d: %s", in->pid, text);
            return -EIO;
        }
        if (!*l && reread_maps(in) < 0) {
            *why = say("process %d ended just now", in->pid);
            return -ESRCH;
        }
        if (!*l && agentfile_open(in->pid, &in->maps, 1, l, NULL, 0) < 0)
            *l = NULL;
        state = *l ? __atomic_load_n(&(*l)->state, __ATOMIC_ACQUIRE) : LIVE_STARTING;
        if (state == LIVE_FAILED) {
            *why = say("the agent failed to start in process %d", in->pid);
            return -EIO;
        }
        if (state != LIVE_STARTING) /* it runs, or has run: the program may have ended meanwhile */
            return 0;
        proc_sleep_us(2000);
    }
    *why = say("the agent is loaded in process %d but has not come up within %u s (%s)", in->pid,
               (unsigned)(WAIT_NS / 1000000000u), text[0] ? text : "is the process stopped?");
    return -ETIMEDOUT;
}

static void report(struct inject *in, const struct live *l, const char *what, char **out) {
    struct text t = {0};

    text_add(&t, "process %d is %s", in->pid, what);
    if (!in->passive)
        text_add(&t, " into %s", l->trace_path);
    text_add(&t, " (agent %s", PROBING_VERSION);
    if (in->stops)
        text_add(&t, ", loaded by dlopen at a safe point; the target stood still %.1f ms%s",
                 (double)in->stood_ns / 1e6, in->stood_before ? ", and while GDB held it" : "");
    else
        text_add(&t, "; nothing was done");
    text_add(&t, ")");
    if (!in->passive)
        text_add(&t, "; next: probing-convert %s out.db", l->trace_path);
    *out = text_take(&t);
}

static const char *conf_value(const char *conf, const char *key) {
    size_t n = strlen(key);

    for (const char *p = conf; p && *p; p = (p = strchr(p, '\n')) ? p + 1 : NULL) {
        if (strncmp(p, key, n) == 0 && p[n] == '=')
            return p + n + 1;
    }
    return NULL;
}

/* The caller's lines, and what they leave open. */
static char *full_conf(const struct inject *in, const char *conf) {
    const char *trace = conf_value(conf, "PROBING_TRACE");
    char host[65] = "host";
    struct text t = {0};

    if (gethostname(host, sizeof host - 1) < 0)
        strcpy(host, "host");
    if (in->passive) /* it has none */
        ;
    else if (!trace)
        text_add(&t, "PROBING_TRACE=%s/probing-%s-%d.zst\n", in->pre.cwd, host, in->pid);
    else if (*trace != '/')
        text_add(&t, "PROBING_TRACE=%s/%.*s\n", in->pre.cwd, (int)strcspn(trace, "\n"), trace);
    if (!conf_value(conf, "PROBING_MAIN_PID"))
        text_add(&t, "PROBING_MAIN_PID=%d\n", in->pid);
    for (const char *p = conf; *p;) {
        size_t n = strcspn(p, "\n");
        if (n && !(trace && *trace != '/' && p + strlen("PROBING_TRACE=") == trace))
            text_add(&t, "%.*s\n", (int)n, p);
        p += n + (p[n] == '\n');
    }
    return text_take(&t);
}

/* An agent that does not record makes room for one that does. 1, or -errno. */
static int end_recording(struct inject *in, struct live *l, int passive) {
    uint64_t deadline = proc_now() + WAIT_NS;
    char reply[256];
    struct live *still = NULL;
    int status = 0, rc = 0;
    size_t n;

    if (passive)
        rc = live_mail_call(l, MAIL_STOP, "", 0, 3000, &status, reply, sizeof reply, &n);
    while (rc == 0 && proc_now() < deadline) {
        rc = reread_maps(in);
        if (rc == 0 && agentfile_open(in->pid, &in->maps, 0, &still, NULL, 0) == -ENOENT)
            break;
        live_close(still);
        still = NULL;
        proc_sleep_us(2000);
    }
    return rc < 0 ? rc : 1;
}

/* An agent is there already. 0: dealt with, *out says how; 1: it must be loaded. */
static int already(struct inject *in, char **out) {
    struct live *l;
    int rc = agentfile_open(in->pid, &in->maps, 1, &l, NULL, 0), passive;
    uint32_t state;

    if (rc == -ENOENT)
        return 1;
    if (rc < 0) {
        *out = say("an agent is in process %d already, but its live file cannot be opened: %s",
                   in->pid, strerror(-rc));
        return rc;
    }
    state = __atomic_load_n(&l->state, __ATOMIC_ACQUIRE);
    passive = agentfile_passive(l);
    if (passive && in->passive)
        report(in, l, "ready to be asked", out);
    else if (passive || state == LIVE_FAILED || state == LIVE_STOPPED) {
        rc = end_recording(in, l, passive);
        if (rc < 0)
            *out = say("the agent in process %d does not record and cannot be started again: %s",
                       in->pid, strerror(-rc));
    } else
        report(in, l, "already recorded", out);
    live_close(l);
    return rc;
}

int inspect_inject(int pid, const char *lib_dir, const char *conf, unsigned flags,
                   uint64_t stood_ns, char **out) {
    struct inject *in = calloc(1, sizeof *in);
    struct live *l = NULL;
    sigset_t ends, before;
    char *full = NULL;
    int rc = -ENOMEM;

    *out = NULL;
    if (!in)
        return rc;
    /* Nothing staged is to be left behind. */
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    sigaddset(&ends, SIGQUIT);
    pthread_sigmask(SIG_BLOCK, &ends, &before);
    in->pid = pid;
    in->flags = flags;
    in->stood_before = stood_ns == INSPECT_STOOD;
    in->stood_ns = in->stood_before ? 0 : stood_ns;
    in->passive = conf_value(conf, "PROBING_PASSIVE") != NULL;
    in->frames = calloc(NATIVE_MAX, sizeof *in->frames);
    in->names = calloc(NATIVE_MAX, sizeof *in->names);
    if (!in->frames || !in->names)
        goto out;
    rc = proc_maps_read(pid, &in->maps);
    if (rc == 0 || rc == -ENOENT || rc == -EACCES || rc == -EPERM)
        rc = preflight(&in->pre, pid, &in->maps, flags, out);
    if (rc == 0)
        rc = (full = full_conf(in, conf)) ? already(in, out) : -ENOMEM;
    if (rc != 1)
        goto out;
    rc = stage_make(&in->stage, pid, in->pre.uid, in->pre.gid, lib_dir, full, out);
    if (rc == 0)
        rc = find_moment(in, out);
    if (rc == 0)
        rc = wait_agent(in, &l, out);
    if (rc == 0)
        report(in, l, in->passive ? "ready to be asked" : "being recorded", out);
out:
    stage_remove(&in->stage);
    live_close(l);
    native_close(in->native);
    proc_maps_free(&in->maps);
    free(in->frames);
    free(in->names);
    free(full);
    free(in);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
