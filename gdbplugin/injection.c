/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_inject(): performs the steps of inject.h, waits for the agent to start, and reports the result. */
#include <signal.h>

#include "script.h"
#include "text.h"
#include "traces/proc.h"

#define WAIT_NS  10000000000u /* for the agent to start */
#define START_NS 300000000u   /* for a program to load its Python */
#define TRIES    100          /* for a process that runs exec after exec */
#define EXEC_NS  10000000000u /* for an exec to end */
#define AGAIN_NS 500000000u   /* for an exec to become visible */
#define READS    5

static const struct {
    const char *name;
    const struct script_method *script;
    int (*load)(struct inject *in, char **why);
} methods[INJECT_METHODS] = {
    [INJECT_NATIVE] = {"native", NULL, native_load},
    [INJECT_PEP768] = {"pep768", &remote_method, NULL},
    [INJECT_PENDING] = {"pending", &pending_method, NULL},
    [INJECT_BREAKPOINT] = {"breakpoint", NULL, NULL}, /* never done */
};

/* Waits until the live file says that the agent has started, in a thread of its own. -EALREADY: the agent is that of
 * another injection, which had not started at the first check (its injector may have been killed). */
static int wait_agent(struct inject *in, struct live **l, char **why) {
    uint64_t deadline = sys_now() + WAIT_NS;
    char text[512] = "";
    uint32_t state;
    int status = 0;

    *l = NULL;
    while (sys_now() < deadline) {
        inject_adopt(in, 1);
        if (status == 0)
            status = stage_status(&in->stage, text, sizeof text);
        if (status < 0 && status != -EALREADY)
            return fail(why, status, "the agent did not start in process %d: %s", in->pid, text);
        if (inject_same(in) < 0)
            return -ESTALE;
        if (!*l && inject_maps(in) < 0)
            return fail(why, -ESRCH, "process %d ended just now", in->pid);
        if (!*l && agentfile_open(in->pid, &in->maps, 1, l) < 0)
            *l = NULL;
        state = *l ? __atomic_load_n(&(*l)->state, __ATOMIC_ACQUIRE) : LIVE_STARTING;
        if (state == LIVE_FAILED)
            return fail(why, -EIO, "the agent failed to start in process %d", in->pid);
        if (state != LIVE_STARTING) /* it runs, or has run: the program may have ended */
            return status == -EALREADY ? -EALREADY : 0;
        /* If the trace's name was taken, the agent has started again with another live file: search again. */
        agentfile_close(*l);
        *l = NULL;
        sys_sleep(2 * SYS_MS);
    }
    return fail(why, -ETIMEDOUT,
                "the agent is loaded in process %d but has not come up within %u s (%s)", in->pid,
                (unsigned)(WAIT_NS / 1000000000u), text[0] ? text : "is the process stopped?");
}

/* Writes the line that says how the injection went; the trace's path in it is given as we see it. */
static void report(struct inject *in, const struct live *l, const char *what, char **out) {
    struct text t = {0};

    text_add(&t, "process %d %sis %s", in->pid,
             in->execs ? "began another program meanwhile (exec), which " : "", what);
    if (!in->passive)
        text_put(&t, " into %q", l->trace_path);
    text_add(&t, " (agent %s", PROBING_VERSION);
    if (in->stops) {
        text_add(&t, ", %s; the target stood still %.1f ms", in->means, (double)in->stood_ns / 1e6);
        if (in->stops > 2)
            text_add(&t, " in %u moments of at most %.1f ms", in->stops,
                     (double)in->longest_ns / 1e6);
        text_add(&t, in->stood_before ? ", and while GDB held it)" : ")");
    } else
        text_add(&t, "; nothing was done)");
    if (!in->passive)
        text_put(&t, "; next: probing-convert %q%w out.db", in->pre.root, l->trace_path);
    *out = text_take(&t);
}

/* Makes the configuration: the caller's lines, and defaults for what they lack. */
static char *full_conf(const struct inject *in, const char *conf) {
    const char *trace = proc_value(conf, "PROBING_TRACE", "=");
    const char *slash = in->pre.cwd[1] ? "/" : "";
    char host[65] = "host";
    struct text t = {0};

    if (gethostname(host, sizeof host - 1) < 0)
        strcpy(host, "host");
    if (in->passive) /* it has no trace */
        ;
    else if (!trace)
        text_add(&t, "PROBING_TRACE=%s%sprobing-%s-%d.zst\n", in->pre.cwd, slash, host, in->pid);
    else if (*trace != '/')
        text_add(&t, "PROBING_TRACE=%s%s%.*s\n", in->pre.cwd, slash, (int)strcspn(trace, "\n"),
                 trace);
    if (!proc_value(conf, "PROBING_MAIN_PID", "="))
        text_add(&t, "PROBING_MAIN_PID=%d\n", in->pre.pid_there);
    if (in->judged)
        text_add(&t, "PROBING_FILTER_JUDGED=1\n");
    for (const char *p = conf; *p;) {
        size_t n = strcspn(p, "\n");
        if (n && !(trace && *trace != '/' && p + strlen("PROBING_TRACE=") == trace))
            text_add(&t, "%.*s\n", (int)n, p);
        p += n + (p[n] == '\n');
    }
    return text_take(&t);
}

/* Waits until an agent that does not record is gone (a passive one is told to stop), so that one that records can follow. Returns 1, or -errno. */
static int end_recording(struct inject *in, struct live *l, int passive) {
    uint64_t deadline = sys_now() + WAIT_NS;
    char reply[256];
    struct live *still = NULL;
    int status = 0, rc = 0;
    size_t n;

    if (passive)
        rc = live_mail_call(l, MAIL_STOP, "", 0, 3000, &status, reply, sizeof reply, &n);
    while (rc == 0 && sys_now() < deadline) {
        rc = inject_maps(in);
        if (rc == 0 && agentfile_open(in->pid, &in->maps, 0, &still) == -ENOENT)
            break;
        agentfile_close(still);
        still = NULL;
        sys_sleep(2 * SYS_MS);
    }
    return rc < 0 ? rc : 1;
}

/* Handles an agent that is there already. Returns 0: done, *out says how; 1: the agent must be loaded. */
static int already(struct inject *in, char **out) {
    struct live *l;
    int rc = agentfile_open(in->pid, &in->maps, 1, &l), passive;
    uint32_t state;

    if (rc == -ENOENT)
        return 1;
    if (rc < 0)
        return fail(out, rc,
                    "an agent is in process %d already, but its live file cannot be opened: %s",
                    in->pid, strerror(-rc));
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
    agentfile_close(l);
    return rc;
}

/* Says what would be done, and does nothing. */
static char *dry_run(struct inject *in) {
    enum inject_method only = INJECT_METHOD_OF(in->flags);
    struct text t = {0};
    unsigned tried = 0;

    text_add(&t, "process %d: user %u", in->pid, in->pre.uid);
    if (in->pre.pid_there != in->pid)
        text_add(&t, ", pid %d in its own namespace", in->pre.pid_there);
    if (in->pre.root[0])
        text_add(&t, ", files under %s", in->pre.root);
    text_add(&t, "%s%s; nothing was done\n",
             in->pre.code.filtered ? ", under a seccomp filter" : "",
             in->judged ? " that allows it" : "");
    for (int m = INJECT_NATIVE; m < INJECT_METHODS; m++) {
        in->why[0] = 0;
        text_add(&t, "  %-10s ", methods[m].name);
        if (m == INJECT_BREAKPOINT)
            text_add(&t, "never: a breakpoint is a change of code that every thread can run into");
        else if (methods[m].script && script_possible(in, methods[m].script) < 0)
            text_add(&t, "no: %s", in->why);
        else if (only && only != (enum inject_method)m)
            text_add(&t, "possible");
        else
            text_add(&t, "would be tried%s", tried++ ? " when that finds no way" : "");
        text_add(&t, "\n");
    }
    return text_take(&t);
}

/* Tries the methods in their order, until one has loaded the stub. */
static int climb(struct inject *in, char **why) {
    enum inject_method only = INJECT_METHOD_OF(in->flags);
    struct text t = {0};
    AUTO_FREE char *reasons = NULL;
    int rc = -ENOTSUP;

    if (only == INJECT_BREAKPOINT)
        return fail(
            why, -ENOTSUP,
            "no breakpoint is ever set: the code it changes is every thread's, and if we died it would stay "
            "(use another --method, or none)");
    for (int m = INJECT_NATIVE; m < INJECT_BREAKPOINT; m++) {
        if (only && only != (enum inject_method)m)
            continue;
        in->why[0] = 0;
        rc = methods[m].script ? script_load(in, methods[m].script, why) : methods[m].load(in, why);
        if (rc != -EAGAIN && rc != -ENOTSUP)
            break;
        text_add(&t, "%s%s: %s", t.f ? "; " : "", methods[m].name, in->why);
    }
    reasons = text_take(&t);
    if (rc == 0 || *why)
        return rc;
    if (rc == -ESRCH)
        return fail(why, rc, "process %d ended just now", in->pid);
    if (rc == -ESTALE)
        return fail(why, rc, "process %d began another program (exec)", in->pid);
    if (rc == -EAGAIN)
        return fail(why, rc,
                    "no safe moment in %u stops (%s); nothing was done to process %d, try again",
                    in->stops, reasons ? reasons : "", in->pid);
    if (rc == -ENOTSUP)
        return fail(why, rc, "no way into process %d (%s); nothing was done to it", in->pid,
                    reasons ? reasons : "");
    return fail(why, rc, "cannot inject into process %d: %s", in->pid, strerror(-rc));
}

/* Whether the process is alive. An ending one loses its memory first. While an exec gives another thread the main one's place, a reading may find neither. */
static int lives(pid_t pid) {
    for (int i = 0; i < READS; i++) {
        struct proc_maps maps;
        int rc = proc_maps_read(pid, &maps), yes = rc == 0 && maps.n > 0;

        proc_maps_free(&maps);
        if (rc < 0) /* we may not read them, or it is gone */
            yes = proc_is_running(pid);
        if (yes)
            return 1;
        sys_sleep(SYS_MS);
    }
    return 0;
}

/* Whether the loader is mapped, but not yet the C library: on a busy machine loading takes its time. */
static int is_loading(const struct proc_maps *maps) {
    return proc_maps_library(maps, "ld-linux*") && !proc_maps_library(maps, "libc.so.6") &&
           !proc_maps_library(maps, "libc-2.*");
}

/* Repeats the preflight for a while, as a program that has just begun has not loaded its libraries yet. */
static int preflight_soon(struct inject *in, char **out) {
    uint64_t deadline = sys_now() + START_NS;
    int rc;

    for (;;) {
        proc_maps_free(&in->maps);
        rc = proc_maps_read(in->pid, &in->maps);
        if (rc == 0 || rc == -ENOENT || rc == -EACCES || rc == -EPERM)
            rc = preflight(&in->pre, in->pid, &in->maps, in->flags, out);
        if ((rc != -ENODATA && rc != -ENOTSUP) ||
            sys_now() > deadline + (is_loading(&in->maps) ? EXEC_NS : 0))
            return rc;
        inspect_free(*out);
        *out = NULL;
        sys_sleep(10 * SYS_MS);
    }
}

static int inject(struct inject *in, const char *lib_dir, const char *conf, char **out) {
    struct live *l = NULL;
    AUTO_FREE char *full = NULL;
    int rc = preflight_soon(in, out);

    if (rc == 0)
        rc = in->flags & INJECT_DRY_RUN ? 1 : already(in, out);
    if (rc == 1 && (rc = filters_allow(in, out)) == 0) {
        if (in->flags & INJECT_DRY_RUN)
            return (*out = dry_run(in)) ? 0 : -ENOMEM;
        rc = (full = full_conf(in, conf)) ? 1 : -ENOMEM;
    }
    if (rc == 1) {
        rc = stage_make(&in->stage, in->pid, &in->pre, lib_dir, full, out);
        if (rc == 0)
            rc = climb(in, out);
        if (rc == 0)
            rc = wait_agent(in, &l, out);
        if (rc == 0)
            report(in, l, in->passive ? "ready to be asked" : "being recorded", out);
        else if (rc == -EALREADY && (rc = already(in, out)) == 1) {
            rc = fail(out, -EAGAIN, "another recording of process %d ended just now; try again",
                      in->pid);
        }
        stage_remove(&in->stage);
    }
    agentfile_close(l);
    return rc;
}

/* Finds which program the process runs now. `rc` is the result of a try, which may be due to knowledge of an earlier program. Waits for the
 * end of an exec, in which a process also looks like one that has ended, and can start no thread. */
static int find_image(const struct inject *in, int rc, uint64_t now[2]) {
    const uint64_t from = sys_now(), wait = rc == -EAGAIN ? AGAIN_NS : EXEC_NS;
    const int same = rc != -ESRCH && rc != -ESTALE && rc != -EAGAIN; /* the same program will do */
    int err;

    do {
        err = proc_image(in->pid, now);
        if (err == -EACCES || err == -EPERM || (err == 0 && (same || now[1] != in->image[1])))
            break;
        sys_sleep(2 * SYS_MS);
    } while (lives(in->pid) && sys_now() - from < wait);
    return err;
}

/* Starts again each time the process begins another program (exec) meanwhile, since all that was learnt about it is invalid then. */
static int inject_anew(struct inject *in, const char *lib_dir, const char *conf, char **out) {
    uint64_t now[2];
    int rc = 0;

    for (int tries = 0; tries < TRIES; tries++) {
        rc = inject(in, lib_dir, conf, out);
        if (rc >= 0 || find_image(in, rc, now) < 0 || now[1] == in->image[1] ||
            now[0] != in->image[0])
            break;
        in->execs++;
        in->image[1] = now[1];
        inspect_free(*out);
        *out = NULL;
        native_close(in->native);
        in->native = NULL;
        in->watched = 0;
        in->child = 0;
    }
    if (rc < 0 && !*out)
        fail(out, rc, "process %d ended, or begins one program after the other (exec)", in->pid);
    return rc;
}

int inspect_inject(int pid, const char *lib_dir, const char *conf, unsigned flags,
                   uint64_t stood_ns, char **out) {
    struct inject *in = calloc(1, sizeof *in);
    sigset_t ends, before;
    int rc, lived;

    *out = NULL;
    if (!in)
        return -ENOMEM;
    /* Nothing staged may be left behind. */
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
    in->passive = proc_value(conf, "PROBING_PASSIVE", "=") != NULL;
    lived = lives(pid);
    rc = lived && find_image(in, 0, in->image) == 0 ? inject_anew(in, lib_dir, conf, out)
                                                    : inject(in, lib_dir, conf, out);
    if (rc < 0 && lived && !lives(pid)) { /* whatever went wrong, this is the reason */
        free(*out);
        rc = fail(out, -ESRCH, "process %d ended just now", pid);
    }
    native_close(in->native);
    proc_maps_free(&in->maps);
    free(in->allocators);
    free(in);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
