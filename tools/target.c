/* SPDX-License-Identifier: Apache-2.0 */
#include "target.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../traces/proc.h"
#include "common.h"

static volatile sig_atomic_t interrupts; /* not yet returned by target_interrupted() */
static void (*leaving)(void), (*calls)(void);

static void on_interrupt(int sig) {
    (void)sig;
    if (++interrupts > 3) { /* pressed so often, it ends the program at once */
        if (leaving)
            leaving();
        _exit(130);
    }
    inspect_mail_interrupt();
    if (calls)
        calls();
}

void target_catch_interrupt(void (*before_exit)(void)) {
    leaving = before_exit;
    struct sigaction sa = {.sa_handler = on_interrupt}; /* no SA_RESTART: it ends a read */

    sigaction(SIGINT, &sa, NULL);
}

void target_on_interrupt(void (*also)(void)) {
    calls = also;
}

static void hold_interrupts(sigset_t *before) {
    sigset_t interrupt;

    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    sigprocmask(SIG_BLOCK, &interrupt, before);
}

int target_interrupted(void) {
    sigset_t before;

    if (!interrupts)
        return 0;
    hold_interrupts(&before); /* none may come between reading and clearing the count */
    int n = interrupts;
    interrupts = 0;
    inspect_mail_forget();
    sigprocmask(SIG_SETMASK, &before, NULL);
    return n;
}

int target_interrupts(void) {
    return interrupts;
}

int target_wait(struct pollfd *fds, unsigned long n, int ms) {
    const struct timespec most = {ms / 1000, ms % 1000 * 1000000l};
    sigset_t before;

    hold_interrupts(&before);
    int rc = interrupts ? -EINTR : ppoll(fds, n, ms < 0 ? NULL : &most, &before);
    rc = rc == -1 ? -errno : rc;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int target_inject(int pid, const char *conf, unsigned flags, char **out) {
    char probe[4096], *slash;
    int rc = tool_lib("libprobing-inject.so", probe, sizeof probe);

    *out = NULL;
    if (rc < 0)
        return rc;
    slash = strrchr(probe, '/');
    *slash = 0;
    return inspect_inject(pid, probe, conf, flags, 0, out);
}

int target_ask(int pid, int kind, const char *request, double timeout, int bring, char **out) {
    int ms = (int)(timeout * 1000), rc;

    rc = inspect_mail(pid, kind, request, ms, out);
    if (rc == -ENOENT && bring) {
        inspect_free(*out);
        rc = target_inject(pid, "PROBING_PASSIVE=1\n", 0, out);
        if (rc < 0)
            return rc;
        inspect_free(*out);
        *out = NULL;
        rc = interrupts ? -EINTR : inspect_mail(pid, kind, request, ms, out);
    }
    if (rc == -EINTR) { /* the same message in all tools */
        inspect_free(*out);
        if (asprintf(out, "interrupted before process %d was asked", pid) < 0)
            *out = NULL;
    }
    return rc;
}

int target_show(const char *answer) {
    cJSON *j = cJSON_Parse(answer);
    const char *out = cJSON_GetStringValue(cJSON_GetObjectItem(j, "out"));
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItem(j, "value"));
    const char *error = cJSON_GetStringValue(cJSON_GetObjectItem(j, "error"));
    const char *late = cJSON_GetStringValue(cJSON_GetObjectItem(j, "late"));
    int ok = cJSON_IsTrue(cJSON_GetObjectItem(j, "ok")), code = TOOL_OK;

    if (!j)
        code = tool_fail("the agent's answer cannot be read: %.200s", answer);
    if (out && *out)
        fputs(out, stdout);
    if (value)
        printf("%s\n", value);
    if (j && !ok && (error || !late)) {
        fflush(stdout);
        fprintf(stderr, "%s%s", error ? error : "unknown error",
                error && *error && error[strlen(error) - 1] == '\n' ? "" : "\n");
        code = TOOL_PARTIAL;
    }
    if (late)
        code = tool_fail("%s", late);
    cJSON_Delete(j);
    return code;
}

const char *target_word(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-t") == 0 || strcmp(argv[i], "--target") == 0)
            i++;
        else if (argv[i][0] != '-')
            return argv[i];
    }
    return "";
}

int target_pid(const char *text, int *pid) {
    double v;

    if (tool_number(text, 1, 1 << 30, &v) < 0 || v != (int)v)
        return tool_usage("'%s' is no process id", text);
    /* A thread's id, as htop and ps -L show them, has a folder in /proc, too. */
    uint64_t process = proc_status_number((int)v, 0, "Tgid", 10);
    *pid = process ? (int)process : (int)v;
    return TOOL_OK;
}
