/* SPDX-License-Identifier: Apache-2.0 */
#include "cause.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../converter/reader.h"
#include "../traces/proc.h"

#define KMSG_MAX 100000 /* lines read in one go: new ones may come as fast as they are read */
#define KILLS    4096   /* number of kills that are kept, the newest ones */

int cause_signal(int pid) {
    char text[1024], *state, *code;

    if (pid <= 0 || proc_file(pid, 0, "stat", text, sizeof text) <= 0 ||
        !(state = proc_stat_field(text, 3)) || *state != 'Z' || !(code = proc_stat_field(text, 52)))
        return 0;
    int status = atoi(code); /* exit_code, the last field */
    return WIFSIGNALED(status) ? WTERMSIG(status) : CAUSE_NONE;
}

int cause_finish(const char *live, int signal, struct writer_finished *done) {
    return signal == CAUSE_NONE ? writer_finish(live, "_exit", 0, done)
                                : writer_finish(live, "killed", signal, done);
}

/*
 * Processes that the kernel killed, according to its log. Reading a line takes a system call, and there may be thousands of lines. A job may leave
 * hundreds of killed processes, so the log stays open and each look-up reads only the lines that are new since the one before.
 */
static struct {
    int fd;
    unsigned n;
    struct kill {
        int pid;
        uint64_t ns;
    } kills[KILLS];
} kernel = {.fd = -1};

/* Keeps a line of the kernel's log if it reports a kill: "6,1234,5678901,-;... Killed process 4711 (python) ..." */
static void keep_line(const char *line) {
    unsigned long long us;
    const char *at = strstr(line, "Killed process ");

    if (at && sscanf(line, "%*u,%*u,%llu", &us) == 1)
        kernel.kills[kernel.n++ % KILLS] =
            (struct kill){atoi(at + strlen("Killed process ")), us * 1000};
}

static int kernel_log_says(int pid, uint64_t start) {
    char line[8192];

    if (kernel.fd < 0)
        kernel.fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    for (unsigned i = 0; kernel.fd >= 0 && i < KMSG_MAX; i++) {
        ssize_t n = read(kernel.fd, line, sizeof line - 1);
        if (n < 0 && (errno == EPIPE || errno == EINTR)) /* EPIPE: older lines are gone */
            continue;
        if (n <= 0)
            break;
        line[n] = 0;
        keep_line(line);
    }
    for (unsigned i = 0; i < kernel.n && i < KILLS; i++) {
        /* The log's clock may differ from CLOCK_MONOTONIC by seconds. A minute is allowed: no pid is reused that soon. */
        if (kernel.kills[i].pid == pid && kernel.kills[i].ns + 60000000000u > start)
            return 1;
    }
    return 0;
}

/* Copies the value of a fact of kind "limit" with this key; of several facts, the last one stays. */
static void take_fact(const struct trace_value *v, const char *key, char *out, size_t n) {
    const struct trace_value *k = &v[TRACE_fact_key], *value = &v[TRACE_fact_value];

    if (v[TRACE_fact_kind].n == 5 && !memcmp(v[TRACE_fact_kind].p, "limit", 5) &&
        k->n == strlen(key) && !memcmp(k->p, key, k->n) && value->n < n) {
        memcpy(out, value->p, value->n);
        out[value->n] = 0;
    }
}

/* Reads from the trace the name of the cgroup file that counts OOM kills, and its count when the recording began. */
static int recorded_count(const char *trace, char file[4096], uint64_t *count) {
    struct trace_value v[TRACE_MAX_FIELDS];
    struct reader_data data = {0};
    struct trace_rows rows;
    struct reader *r;
    char number[32] = "";

    file[0] = 0;
    if (reader_open(&r, trace) != 0)
        return 0;
    for (size_t i = 0; i < reader_blocks(r); i++) {
        if (!(reader_block(r, i)->types >> TRACE_fact & 1) || reader_load(r, i, &data) != 0)
            continue;
        trace_rows_start(&rows, &data.h, data.data);
        while (trace_rows_next(&rows, 1ull << TRACE_fact, v) > 0) {
            take_fact(v, "oom_file", file, 4096);
            take_fact(v, "oom_kills", number, sizeof number);
        }
    }
    reader_data_free(&data);
    reader_close(r);
    *count = strtoull(number, NULL, 10);
    return file[0] && number[0];
}

/* Reads the present count. Only files below /sys/fs/cgroup are read, as the name comes from the trace, which is not trusted. */
static int count_now(const char *file, uint64_t *count) {
    static const char root[] = "/sys/fs/cgroup/";
    char text[4096];

    if (strncmp(file, root, sizeof root - 1) != 0 || strstr(file, "/../") ||
        !proc_read_file(file, text, sizeof text))
        return 0;
    char *at = strstr(text, "oom_kill ");
    *count = at ? strtoull(at + 9, NULL, 10) : 0;
    return at != NULL;
}

int cause_find(const char *trace, int pid, uint64_t start, int signal, char why[CAUSE_TEXT]) {
    char file[4096];
    uint64_t before, now;

    if (signal && signal != SIGKILL)
        return 0;
    if (pid > 0 && kernel_log_says(pid, start)) {
        snprintf(why, CAUSE_TEXT, "killed by the OOM killer (kernel log)");
        return 1;
    }
    if (!recorded_count(trace, file, &before) || !count_now(file, &now) || now <= before)
        return 0;
    snprintf(why, CAUSE_TEXT, "killed by the OOM killer (count of its cgroup rose by %llu)",
             (unsigned long long)(now - before));
    return 1;
}
