/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/values.h"
#include "agent/core/python.h"

#define MAX_CMDLINE 8192

static size_t read_file(const char *path, char *buf, size_t n) {
    size_t have = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && have + 1 < n) {
        ssize_t r = read(fd, buf + have, n - 1 - have);
        if (r <= 0)
            break;
        have += (size_t)r;
    }
    if (fd >= 0)
        close(fd);
    buf[have] = 0;
    return have;
}

/* Field 22 of /proc/self/stat counts ticks of CLOCK_BOOTTIME; the trace counts CLOCK_MONOTONIC. */
static uint64_t process_start(void) {
    char buf[1024], *p;
    if (!read_file("/proc/self/stat", buf, sizeof buf) || !(p = strrchr(buf, ')')))
        return 0;
    p++;
    for (int field = 2; field < 21 && p; field++)
        p = strchr(p + 1, ' ');
    if (!p)
        return 0;
    long hz = sysconf(_SC_CLK_TCK);
    uint64_t boot = strtoull(p, NULL, 10) * (1000000000u / (uint64_t)(hz > 0 ? hz : 100));
    uint64_t now = values_now(); /* before the other: the difference is never negative */
    uint64_t slept = values_clock(CLOCK_BOOTTIME) - now;
    if (slept < 1000000) /* this host was never suspended: the difference is between two calls */
        slept = 0;
    return boot > slept ? boot - slept : 0;
}

int meta_process(struct writer *w, const struct agent_ranks *ranks, const struct agent_python *py,
                 const char *how) {
    char exe[4096], cwd[4096], cmdline[MAX_CMDLINE];
    const struct live *l = writer_live(w);
    size_t cmd_len = read_file("/proc/thread-self/cmdline", cmdline, sizeof cmdline);
    ssize_t exe_len = readlink("/proc/thread-self/exe", exe, sizeof exe);
    if (!getcwd(cwd, sizeof cwd))
        cwd[0] = 0;
    const struct writer_value v[TRACE_process_NFIELDS] = {
        [TRACE_process_ts] = value_u(values_now()),
        [TRACE_process_start_ts] = value_u(process_start()),
        [TRACE_process_host] = value_text(l->host),
        [TRACE_process_boot_id] = value_text(l->boot_id),
        [TRACE_process_pid] = value_u(l->pid),
        [TRACE_process_ppid] = value_u((uint64_t)getppid()),
        [TRACE_process_uid] = value_u(geteuid()),
        [TRACE_process_rank] = value_i(ranks->rank),
        [TRACE_process_local_rank] = value_i(ranks->local_rank),
        [TRACE_process_world_size] = value_i(ranks->world_size),
        [TRACE_process_exe] = value_bytes(exe, exe_len > 0 ? (size_t)exe_len : 0),
        [TRACE_process_cmdline] = value_bytes(cmdline, cmd_len),
        [TRACE_process_cwd] = value_text(cwd),
        [TRACE_process_python] = value_u(py ? py->target.version : 0),
        [TRACE_process_eval_start] = value_u(py ? py->eval_start : 0),
        [TRACE_process_eval_end] = value_u(py ? py->eval_end : 0),
        [TRACE_process_agent] = value_text(PROBING_VERSION),
        [TRACE_process_how] = value_text(how),
        [TRACE_process_role] = value_text(ranks->role),
        [TRACE_process_master] = value_text(ranks->master),
        [TRACE_process_cold_start] = value_u(py ? py->cold_start : 0),
        [TRACE_process_cold_end] = value_u(py ? py->cold_end : 0),
        [TRACE_process_run] = value_text(ranks->id.run),
        [TRACE_process_job] = value_text(ranks->id.job),
    };
    return writer_emit(w, TRACE_process, v);
}

int meta_clock(struct writer *w) {
    uint64_t best[4] = {0, 0, 0, UINT64_MAX};
    for (int i = 0; i < 3; i++) {
        uint64_t mono = values_now(), real = values_clock(CLOCK_REALTIME);
        uint64_t boot = values_clock(CLOCK_BOOTTIME), bracket = values_now() - mono;
        if (bracket < best[3]) {
            best[0] = mono;
            best[1] = real;
            best[2] = boot;
            best[3] = bracket;
        }
    }
    const struct writer_value v[TRACE_clock_NFIELDS] = {
        [TRACE_clock_ts] = value_u(best[0]),
        [TRACE_clock_realtime] = value_u(best[1]),
        [TRACE_clock_boottime] = value_u(best[2]),
        [TRACE_clock_bracket] = value_u(best[3]),
    };
    return writer_emit(w, TRACE_clock, v);
}

int meta_config(struct writer *w, const char *key, const char *value) {
    const struct writer_value v[TRACE_config_NFIELDS] = {
        [TRACE_config_ts] = value_u(values_now()),
        [TRACE_config_key] = value_text(key),
        [TRACE_config_value] = value_text(value),
    };
    return writer_emit(w, TRACE_config, v);
}

int meta_note(struct writer *w, unsigned level, const char *part, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const struct writer_value v[TRACE_note_NFIELDS] = {
        [TRACE_note_ts] = value_u(values_now()),
        [TRACE_note_level] = value_u(level),
        [TRACE_note_part] = value_text(part),
        [TRACE_note_text] = value_text(text),
    };
    return writer_emit(w, TRACE_note, v);
}

void meta_command(char *buf, size_t n) {
    size_t len = read_file("/proc/thread-self/cmdline", buf, n);
    for (size_t i = 0; i < len; i++)
        if (!buf[i] || (unsigned char)buf[i] < ' ')
            buf[i] = i + 1 < len ? ' ' : 0;
}
