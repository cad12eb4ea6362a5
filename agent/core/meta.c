/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/meta.h"

#include <stdarg.h>
#include <stdio.h>

#include "agent/core/python.h"

#define MAX_CMDLINE 8192

/* Field 22 of /proc/self/stat counts ticks of CLOCK_BOOTTIME; the trace counts CLOCK_MONOTONIC. */
static uint64_t process_start(void) {
    long hz = sysconf(_SC_CLK_TCK);
    uint64_t boot =
        proc_stat_number("/proc/self/stat", 22) * (1000000000u / (uint64_t)(hz > 0 ? hz : 100));
    uint64_t now = sys_now(), slept = sys_clock(CLOCK_BOOTTIME) - now; /* in this order: >= 0 */
    if (slept < 1000000) /* the host was never suspended; the two calls took that long */
        slept = 0;
    return boot > slept ? boot - slept : 0;
}

int meta_process(struct writer *w, const struct agent_ranks *ranks, const struct agent_python *py,
                 const char *how) {
    char exe[4096], cwd[4096], cmdline[MAX_CMDLINE];
    const struct live *l = writer_live(w);
    size_t cmd_len = proc_read_file("/proc/thread-self/cmdline", cmdline, sizeof cmdline);
    ssize_t exe_len = readlink("/proc/thread-self/exe", exe, sizeof exe);
    if (!getcwd(cwd, sizeof cwd))
        cwd[0] = 0;
    return WRITER_EMIT(
        w, process, .ts = sys_now(), .start_ts = process_start(), .host = value_text(l->host),
        .boot_id = value_text(l->boot_id), .pid = l->pid, .ppid = (uint64_t)getppid(),
        .uid = geteuid(), .rank = ranks->rank, .local_rank = ranks->local_rank,
        .world_size = ranks->world_size, .exe = value_bytes(exe, exe_len > 0 ? (size_t)exe_len : 0),
        .cmdline = value_bytes(cmdline, cmd_len), .cwd = value_text(cwd),
        .python = py->found.target.version, .eval_start = py->found.eval_start,
        .eval_end = py->found.eval_end, .agent = value_text(PROBING_VERSION),
        .how = value_text(how), .role = value_text(ranks->role),
        .master = value_text(ranks->master), .cold_start = py->found.cold_start,
        .cold_end = py->found.cold_end, .run = value_text(ranks->id.run),
        .job = value_text(ranks->id.job));
}

int meta_clock(struct writer *w) {
    uint64_t best[4] = {0, 0, 0, UINT64_MAX};
    for (int i = 0; i < 3; i++) {
        uint64_t mono = sys_now(), real = sys_clock(CLOCK_REALTIME);
        uint64_t boot = sys_clock(CLOCK_BOOTTIME), bracket = sys_now() - mono;
        if (bracket < best[3])
            memcpy(best, (uint64_t[]){mono, real, boot, bracket}, sizeof best);
    }
    return WRITER_EMIT(w, clock, .ts = best[0], .realtime = best[1], .boottime = best[2],
                       .bracket = best[3]);
}

int meta_note(struct writer *w, unsigned level, const char *part, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return WRITER_EMIT(w, note, .ts = sys_now(), .level = level, .part = value_text(part),
                       .text = value_text(text));
}

void meta_command(char *buf, size_t n) {
    size_t len = proc_read_file("/proc/thread-self/cmdline", buf, n);
    for (size_t i = len, text = 0; i-- > 0;) /* a title ends in many NULs */
        if ((text |= buf[i] != 0) && (unsigned char)buf[i] < ' ')
            buf[i] = ' ';
}
