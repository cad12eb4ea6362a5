/* SPDX-License-Identifier: Apache-2.0 */
/* process_part.c - the part that records what the kernel and the environment tell about this process: metrics (in this file), modules and facts. */
#include <sys/resource.h>

#include "agent/core/part.h"
#include "agent/process/process.h"

#define MODULES_NS     SYS_SECOND
#define MAX_INTERFACES 16 /* a container host has hundreds */

/* ---- metrics: cpu, memory, io and network, from /proc and getrusage(); takes about 60 us. What cannot be read (for example /proc/self/io
 * of a process that is not dumpable) is left out. ---- */

static uint64_t number_after(char *text, const char *key) {
    char *value = proc_value(text, key, ": \t");
    return value ? strtoull(value, NULL, 10) : 0;
}

static uint64_t tv_us(struct timeval tv) {
    return (uint64_t)tv.tv_sec * 1000000 + (uint64_t)tv.tv_usec;
}

static void take_cpu_memory(struct writer *w) {
    uint64_t agent = sys_clock(CLOCK_THREAD_CPUTIME_ID); /* the service thread's own */
    char buf[4096];
    struct rusage ru;
    uint64_t now = sys_now();
    size_t len = proc_read_file("/proc/thread-self/status", buf, sizeof buf);
    getrusage(RUSAGE_SELF, &ru);
    PARTS_SUM(agent, cpu_ns);
    WRITER_EMIT(w, cpu, .ts = now, .user_us = tv_us(ru.ru_utime), .system_us = tv_us(ru.ru_stime),
                .threads = number_after(buf, "Threads"), .voluntary = (uint64_t)ru.ru_nvcsw,
                .involuntary = (uint64_t)ru.ru_nivcsw, .minor_faults = (uint64_t)ru.ru_minflt,
                .major_faults = (uint64_t)ru.ru_majflt, .agent_us = agent / 1000,
                .handler_us =
                    __atomic_load_n(&writer_live(w)->handler_ns, __ATOMIC_RELAXED) / 1000);
    if (!len)
        return;
    WRITER_EMIT(w, memory, .ts = now, .rss = 1024 * number_after(buf, "VmRSS"),
                .vms = 1024 * number_after(buf, "VmSize"),
                .shared = 1024 * (number_after(buf, "RssFile") + number_after(buf, "RssShmem")),
                .data = 1024 * (number_after(buf, "VmData") + number_after(buf, "VmStk")),
                .swap = 1024 * number_after(buf, "VmSwap"),
                .peak = 1024 * number_after(buf, "VmHWM"));
}

static void take_io(struct writer *w) {
    char buf[512];
    uint64_t now = sys_now();
    if (proc_read_file("/proc/self/io", buf, sizeof buf))
        WRITER_EMIT(w, io, .ts = now, .rchar = number_after(buf, "rchar"),
                    .wchar = number_after(buf, "wchar"), .syscr = number_after(buf, "syscr"),
                    .syscw = number_after(buf, "syscw"),
                    .read_bytes = number_after(buf, "read_bytes"),
                    .write_bytes = number_after(buf, "write_bytes"));
}

/* Records an interface; returns 0 if it was never used. "  eth0: rx_bytes rx_packets rx_errs rx_drop fifo frame compressed multicast tx_bytes ..." */
static int take_interface(struct writer *w, uint64_t now, const char *line) {
    uint64_t c[16];
    char *p, *colon = strchr(line, ':');
    if (!colon)
        return 0;
    while (*line == ' ')
        line++;
    p = colon + 1;
    for (unsigned i = 0; i < 16; i++)
        c[i] = strtoull(p, &p, 10);
    if (!c[0] && !c[8])
        return 0;
    WRITER_EMIT(w, network, .ts = now, .interface = value_bytes(line, (size_t)(colon - line)),
                .rx_bytes = c[0], .tx_bytes = c[8], .rx_packets = c[1], .tx_packets = c[9],
                .rx_errors = c[2] + c[3], .tx_errors = c[10] + c[11]);
    return 1;
}

static void take_network(struct writer *w) {
    char buf[16384], *save = NULL;
    uint64_t now = sys_now();
    int used = 0;
    proc_read_file("/proc/thread-self/net/dev", buf, sizeof buf);
    for (char *line = strtok_r(buf, "\n", &save); line && used < MAX_INTERFACES;
         line = strtok_r(NULL, "\n", &save))
        used += take_interface(w, now, line);
}

static void take_metrics(struct writer *w) {
    take_cpu_memory(w);
    take_io(w);
    take_network(w);
}

/* ---- the part ---- */

static uint64_t next_modules;

static void begin(struct writer *w UNUSED) {
    next_modules = 0;
    modules_free();
    facts_reset();
}

static void round_of(struct writer *w, uint64_t now) {
    if (now < next_modules)
        return;
    next_modules = now + MODULES_NS;
    modules_take(w);
    facts_take(w, now);
}

/* A library that was loaded less than a second ago may be the one that crashed: so record it now. */
static void triggered(struct writer *w, uint64_t before UNUSED) {
    round_of(w, next_modules);
}

static void close_all(struct writer *w) {
    modules_take(w);
    facts_take(w, UINT64_MAX);
}

const struct agent_part process_part = {
    .open = begin,
    .round = round_of,
    .metrics = take_metrics,
    .triggered = triggered,
    .close = close_all,
    .free = modules_free,
    .child = modules_forget,
};
