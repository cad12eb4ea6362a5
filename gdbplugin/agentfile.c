/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the live file, and has the two functions that only talk to the agent: status and mail. */
#include "inject.h"

#include "text.h"

#define YOUNG_TRIES 100

void agentfile_close(struct live *l) {
    live_unwatch(l);
    live_close(l);
}

static int open_mapped(pid_t pid, uint32_t own, const struct proc_maps *maps, int writable,
                       struct live **out) {
    char head[32];
    int rc = -ENOENT;

    snprintf(head, sizeof head, "%u-", own);
    for (size_t i = 0; rc != 0 && i < maps->n; i++) {
        const struct proc_map *m = &maps->v[i];
        const char *base = strrchr(m->path, '/'), *dot = strrchr(m->path, '.');
        char there[8448], root[4096];

        if (!base || !dot || m->deleted || strcmp(dot, ".live") ||
            strncmp(base + 1, head, strlen(head)))
            continue;
        /* Under its name here, or under its name in another mount namespace, seen through the process's root. */
        snprintf(there, sizeof there, "%s", m->path);
        rc = live_open(out, there, writable);
        if (rc == -ENOENT && proc_link(pid, "root", root, sizeof root) == 0) {
            size_t cut = strlen(root); /* a changed root is part of the name, "/" is not */
            if (cut == 1 || strncmp(m->path, root, cut))
                cut = 0;
            snprintf(there, sizeof there, "/proc/%d/root%s", pid, m->path + cut);
            rc = live_open(out, there, writable);
        }
        if (rc == 0 && writable && (rc = live_watch(*out)) < 0)
            live_close(*out);
        if (rc == 0 && (*out)->pid != own) {
            agentfile_close(*out);
            rc = -ENOENT;
        }
    }
    return rc;
}

int agentfile_open(pid_t pid, const struct proc_maps *maps, int writable, struct live **out) {
    uint32_t own = (uint32_t)proc_own_id(pid, 0);
    int rc;

    /* The file is mapped shortly before it is complete. */
    for (unsigned i = 0;
         (rc = open_mapped(pid, own, maps, writable, out)) == -EBADMSG && i < YOUNG_TRIES; i++)
        sys_sleep(2 * SYS_MS);
    return rc;
}

int agentfile_passive(const struct live *l) {
    return l->trace_path[0] == 0;
}

static int open_agent(pid_t pid, int writable, struct live **l, char **out) {
    struct proc_maps maps;
    int rc = proc_maps_read(pid, &maps);

    if (rc == -ENOENT || rc == -ESRCH)
        return fail(out, -ESRCH, "there is no process %d", pid);
    if (rc == 0 && maps.n == 0)
        return fail(out, -ESRCH, "process %d has no memory: it has ended, or is a kernel thread",
                    pid);
    if (rc == 0)
        rc = agentfile_open(pid, &maps, writable, l);
    proc_maps_free(&maps);
    if (rc == -ENOENT)
        *out = say("nothing records process %d: start it with probing inject", pid);
    else if (rc == -EACCES || rc == -EPERM)
        *out = say_not_permitted(pid);
    else if (rc < 0)
        fail(out, rc, "cannot reach the agent in process %d: %s", pid, strerror(-rc));
    return rc;
}

static const char *state_name(uint32_t s) {
    static const char *const names[] = {"starting", "running", "stopping", "stopped", "failed"};

    return s < sizeof names / sizeof *names ? names[s] : "unknown";
}

int inspect_status(int pid, unsigned flags, char **out) {
    struct text t = {0};
    struct live *l;
    uint64_t lost = 0;
    double period;
    char problem[200];
    int rc = open_agent(pid, 0, &l, out);

    if (rc < 0)
        return rc;
    for (int i = 0; i < TRACE_NLOST; i++)
        lost += __atomic_load_n(&l->lost[i], __ATOMIC_RELAXED);
    live_problem(l, problem, sizeof problem);
    period = (double)__atomic_load_n(&l->period_ns, __ATOMIC_RELAXED) / 1e9;
    if (flags & INSPECT_JSON) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddNumberToObject(o, "pid", pid);
        cJSON_AddStringToObject(o, "state", state_name(l->state));
        json_text(o, "trace", agentfile_passive(l) ? NULL : l->trace_path);
        cJSON_AddNumberToObject(o, "samples", (double)l->samples);
        cJSON_AddNumberToObject(o, "records", (double)l->records);
        cJSON_AddNumberToObject(o, "trace_bytes", (double)l->trace_bytes);
        cJSON_AddNumberToObject(o, "lost", (double)lost);
        cJSON_AddNumberToObject(o, "period", period);
        json_text(o, "problem", *problem ? problem : NULL);
        json_put(&t, o);
        text_add(&t, "\n");
    } else if (!agentfile_passive(l)) {
        text_put(&t, "process %d: %s, into %q: ", pid, state_name(l->state), l->trace_path);
        if (period > 0)
            text_add(&t, "a sample every %g ms, ", period * 1e3);
        text_add(&t, "%lu samples, %lu records, %lu bytes, %lu lost%s%s\n", l->samples, l->records,
                 l->trace_bytes, lost, *problem ? "; " : "", problem);
    } else
        text_add(&t, "process %d: the agent is there (%s) but does not record\n", pid,
                 state_name(l->state));
    agentfile_close(l);
    *out = text_take(&t);
    return *out ? 0 : -ENOMEM;
}

static struct live *asking; /* (a) the live file whose reply inspect_mail() waits for */

void inspect_mail_interrupt(void) {
    live_mail_interrupt(__atomic_load_n(&asking, __ATOMIC_ACQUIRE));
}

void inspect_mail_forget(void) {
    live_mail_forget();
}

int inspect_mail(int pid, int kind, const char *request, int timeout_ms, char **out) {
    AUTO_FREE char *reply = malloc(LIVE_MAIL + 1);
    const char *late = "the code was interrupted";
    size_t got = 0;
    int status = 0, rc;
    struct live *l;

    *out = NULL;
    rc = reply ? open_agent(pid, 1, &l, out) : -ENOMEM;
    if (rc < 0)
        return rc;
    __atomic_store_n(&asking, l, __ATOMIC_RELEASE);
    rc = live_mail_call(l, (enum mail_kind)kind, request, strlen(request), timeout_ms, &status,
                        reply, LIVE_MAIL + 1, &got);
    if (rc == -ETIMEDOUT) { /* unless it holds the GIL, what it has printed can be asked for */
        late = "the code, or the program that holds the interpreter (GIL), is inside C code, which "
               "cannot be interrupted; it ends when that returns (see probing backtrace)";
        if ((kind == MAIL_EVAL || kind == MAIL_ASK) &&
            !live_mail_call(l, MAIL_ASK, "output\n", 7, 300, &status, reply, LIVE_MAIL + 1, &got) &&
            reply[0] == '{')
            rc = 1;
    }
    __atomic_store_n(&asking, NULL, __ATOMIC_RELEASE);
    agentfile_close(l);
    if (rc == 1 && reply[0] == '{')
        *out = say("{\"late\":\"no answer from process %d within %g s: %s\",%s", pid,
                   timeout_ms / 1e3, late, reply + 1);
    else if (rc >= 0 && status < 0 && !reply[0])
        *out = say("the agent in process %d refused: %s", pid, strerror(-status));
    else if (rc >= 0) {
        *out = reply;
        reply = NULL;
    } else if (rc == -ETIMEDOUT)
        *out = say("no answer from process %d within %g s: %s", pid, timeout_ms / 1e3, late);
    else if (rc == -ECANCELED)
        *out = say(
            "not waited for any more; inside C code it still runs in process %d until that returns",
            pid);
    else if (rc == -EBUSY)
        *out = say("another client has been asking process %d all this time: try again", pid);
    else if (rc == -EMSGSIZE)
        *out = say("the text is longer than %u bytes", LIVE_MAIL);
    else
        *out = say("cannot ask process %d: %s", pid, strerror(-rc));
    return rc >= 0 ? status : rc;
}

void inspect_free(char *text) {
    free(text);
}
