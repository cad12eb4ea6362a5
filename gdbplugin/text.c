/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <limits.h>
#include <stdarg.h>

#include "stop.h"
#include "traces/utf8.h"
#include "traces/visible.h"

/* ---- a growing string ---- */

static FILE *file(struct text *t) {
    if (!t->f)
        t->f = open_memstream(&t->s, &t->n);
    return t->f;
}

void text_add(struct text *t, const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    if (file(t))
        vfprintf(t->f, fmt, ap);
    va_end(ap);
}

void text_plain(struct text *t, const char *s) {
    uint32_t c;

    for (size_t n; *s && file(t); s += n ? n : 1) {
        n = utf8_char(s, 4, &c);
        fprintf(t->f, "%.*s", (int)n + !n, n && c >= ' ' && visible_char(c) ? s : "?");
    }
}

void text_put(struct text *t, const char *fmt, ...) {
    char word[4 * PATH_MAX];
    va_list ap;

    va_start(ap, fmt);
    for (const char *p = fmt; *p && file(t); p++) {
        if (*p != '%')
            putc(*p, t->f);
        else if (*++p == 'd')
            fprintf(t->f, "%d", va_arg(ap, int));
        else if (*p == 'q')
            text_plain(t, va_arg(ap, const char *));
        else if (*p == 'w')
            fputs(visible_quoted(va_arg(ap, const char *), word, sizeof word), t->f);
        else
            fputs(va_arg(ap, const char *), t->f);
    }
    va_end(ap);
}

char *text_take(struct text *t) {
    int bad = !file(t) || ferror(t->f);
    char *s = NULL;

    if ((t->f && fclose(t->f) != 0) || bad)
        free(t->s);
    else
        s = t->s;
    *t = (struct text){0};
    return s;
}

/* ---- JSON ---- */

void json_text(cJSON *object, const char *name, const char *s) {
    cJSON_AddItemToObject(object, name, s ? cJSON_CreateString(s) : cJSON_CreateNull());
}

void json_known(cJSON *object, const char *name, int n) {
    cJSON_AddItemToObject(object, name, n < 0 ? cJSON_CreateNull() : cJSON_CreateNumber(n));
}

cJSON *json_address(uint64_t addr) {
    char hex[32];

    snprintf(hex, sizeof hex, "0x%lx", addr);
    return cJSON_CreateString(hex);
}

void json_put(struct text *t, cJSON *json) {
    AUTO_FREE char *s = visible_json(cJSON_PrintUnformatted(json));

    cJSON_Delete(json);
    text_add(t, "%s", s ? s : "");
}

/* ---- why ---- */

char *say(const char *fmt, ...) {
    struct text plain = {0};
    char *s = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&s, fmt, ap) < 0)
        s = NULL;
    va_end(ap);
    text_plain(&plain, s ? s : "out of memory");
    free(s);
    return text_take(&plain);
}

char *say_traced(pid_t pid) {
    pid_t by = (pid_t)proc_status_number(pid, 0, "TracerPid", 10);
    char comm[64] = "?";

    if (by <= 0)
        return NULL;
    proc_task(by, by, comm, sizeof comm, NULL);
    return say("process %d is traced by process %d (%s): end that first", pid, by, comm);
}

char *say_not_permitted(pid_t pid) {
    unsigned uid = (unsigned)proc_status_number(pid, 0, "Uid", 10);
    char *traced = say_traced(pid);

    if (traced)
        return traced;
    if (geteuid() == 0)
        return say(
            "no permission to trace process %d, not even as root: CAP_SYS_PTRACE is missing here (a "
            "container without it), the process is in another user namespace, or Yama forbids it "
            "(kernel.yama.ptrace_scope=3)",
            pid);
    if (uid != geteuid())
        return say(
            "no permission to trace process %d: it belongs to user %u; become that user or root",
            pid, uid);
    return say("no permission to trace process %d: try as root, or allow it with sysctl "
               "kernel.yama.ptrace_scope=0",
               pid);
}

char *say_stop(pid_t pid, int rc, const struct stop *s) {
    switch (rc) {
    case -ESRCH:
        return say("there is no process %d", pid);
    case -EPERM:
    case -EACCES:
        return say_not_permitted(pid);
    case -ETIMEDOUT:
        return say("thread %d of process %d does not stop: it is in an uninterruptible system "
                   "call, or gets no processor (see /proc/%d/task/%d/stack)",
                   s->stuck, pid, pid, s->stuck);
    default:
        return say("cannot stop process %d: %s", pid, strerror(-rc));
    }
}
