/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/metrics.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/values.h"

#define MAX_INTERFACES 16 /* a container host has hundreds */

static const char *const file_paths[METRICS_NFILES] = {
    [METRICS_STATUS] = "/proc/thread-self/status",
    [METRICS_IO] = "/proc/self/io",
    [METRICS_NET] = "/proc/thread-self/net/dev",
};

static void close_file(struct metrics_file *f) {
    struct stat st;
    if (f->fd >= 0 && !fstat(f->fd, &st) && st.st_dev == f->dev && st.st_ino == f->ino)
        close(f->fd);
    f->fd = -1;
}

static void open_file(struct metrics_file *f, const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    f->fd = -1;
    if (fd >= 0) {
        /* Out of the way of the target, which may look at the numbers it gets. */
        int high = fcntl(fd, F_DUPFD_CLOEXEC, VALUES_FD_BASE);
        if (high >= 0) {
            close(fd);
            fd = high;
        }
        if (fstat(fd, &st)) {
            close(fd);
            fd = -1;
        } else {
            f->dev = st.st_dev;
            f->ino = st.st_ino;
        }
    }
    f->fd = fd;
    f->failed = fd < 0;
}

/* The file's text, NUL at the end. Returns its length, 0 when there is none. */
static size_t read_file(struct metrics *m, int which, char *buf, size_t n) {
    struct metrics_file *f = &m->files[which];
    struct stat st;
    size_t have = 0;
    if (f->failed)
        return 0;
    if (fstat(f->fd, &st) || st.st_dev != f->dev || st.st_ino != f->ino) {
        open_file(f, file_paths[which]);
        if (f->fd < 0)
            return 0;
    }
    while (have + 1 < n) {
        ssize_t r = pread(f->fd, buf + have, n - 1 - have, (off_t)have);
        if (r <= 0)
            break;
        have += (size_t)r;
    }
    buf[have] = 0;
    return have;
}

/* The number after `key` at the start of a line. */
static uint64_t number_after(const char *text, const char *key) {
    size_t len = strlen(key);
    for (const char *p = text; p; p = strchr(p, '\n')) {
        p += *p == '\n';
        if (!strncmp(p, key, len))
            return strtoull(p + len, NULL, 10);
        if (!*p)
            break;
    }
    return 0;
}

static uint64_t tv_us(struct timeval tv) {
    return (uint64_t)tv.tv_sec * 1000000 + (uint64_t)tv.tv_usec;
}

static int take_cpu_memory(struct metrics *m, struct writer *w, uint64_t agent_us,
                           uint64_t handler_us) {
    char buf[4096];
    struct rusage ru;
    uint64_t now = values_now();
    size_t len = read_file(m, METRICS_STATUS, buf, sizeof buf);
    getrusage(RUSAGE_SELF, &ru);
    const struct writer_value cpu[TRACE_cpu_NFIELDS] = {
        [TRACE_cpu_ts] = value_u(now),
        [TRACE_cpu_user_us] = value_u(tv_us(ru.ru_utime)),
        [TRACE_cpu_system_us] = value_u(tv_us(ru.ru_stime)),
        [TRACE_cpu_threads] = value_u(number_after(buf, "Threads:")),
        [TRACE_cpu_voluntary] = value_u((uint64_t)ru.ru_nvcsw),
        [TRACE_cpu_involuntary] = value_u((uint64_t)ru.ru_nivcsw),
        [TRACE_cpu_minor_faults] = value_u((uint64_t)ru.ru_minflt),
        [TRACE_cpu_major_faults] = value_u((uint64_t)ru.ru_majflt),
        [TRACE_cpu_agent_us] = value_u(agent_us),
        [TRACE_cpu_handler_us] = value_u(handler_us),
    };
    int err = writer_emit(w, TRACE_cpu, cpu);
    if (err || !len)
        return err;
    const struct writer_value memory[TRACE_memory_NFIELDS] = {
        [TRACE_memory_ts] = value_u(now),
        [TRACE_memory_rss] = value_u(1024 * number_after(buf, "VmRSS:")),
        [TRACE_memory_vms] = value_u(1024 * number_after(buf, "VmSize:")),
        [TRACE_memory_shared] =
            value_u(1024 * (number_after(buf, "RssFile:") + number_after(buf, "RssShmem:"))),
        [TRACE_memory_data] =
            value_u(1024 * (number_after(buf, "VmData:") + number_after(buf, "VmStk:"))),
        [TRACE_memory_swap] = value_u(1024 * number_after(buf, "VmSwap:")),
        [TRACE_memory_peak] = value_u(1024 * number_after(buf, "VmHWM:")),
    };
    return writer_emit(w, TRACE_memory, memory);
}

static int take_io(struct metrics *m, struct writer *w) {
    char buf[512];
    uint64_t now = values_now();
    if (!read_file(m, METRICS_IO, buf, sizeof buf))
        return 0;
    const struct writer_value io[TRACE_io_NFIELDS] = {
        [TRACE_io_ts] = value_u(now),
        [TRACE_io_rchar] = value_u(number_after(buf, "rchar:")),
        [TRACE_io_wchar] = value_u(number_after(buf, "wchar:")),
        [TRACE_io_syscr] = value_u(number_after(buf, "syscr:")),
        [TRACE_io_syscw] = value_u(number_after(buf, "syscw:")),
        [TRACE_io_read_bytes] = value_u(number_after(buf, "read_bytes:")),
        [TRACE_io_write_bytes] = value_u(number_after(buf, "write_bytes:")),
    };
    return writer_emit(w, TRACE_io, io);
}

/* "  eth0: rx_bytes rx_packets rx_errs rx_drop fifo frame compressed multicast tx_bytes ..." */
static int take_interface(struct writer *w, uint64_t now, const char *line, int *used) {
    uint64_t c[16];
    char *p, *colon = strchr(line, ':');
    if (!colon)
        return 0;
    while (*line == ' ')
        line++;
    p = colon + 1;
    for (unsigned i = 0; i < 16; i++)
        c[i] = strtoull(p, &p, 10);
    if (!c[0] && !c[8]) /* never used */
        return 0;
    *used += 1;
    const struct writer_value network[TRACE_network_NFIELDS] = {
        [TRACE_network_ts] = value_u(now),
        [TRACE_network_interface] = value_bytes(line, (size_t)(colon - line)),
        [TRACE_network_rx_bytes] = value_u(c[0]),
        [TRACE_network_tx_bytes] = value_u(c[8]),
        [TRACE_network_rx_packets] = value_u(c[1]),
        [TRACE_network_tx_packets] = value_u(c[9]),
        [TRACE_network_rx_errors] = value_u(c[2] + c[3]),
        [TRACE_network_tx_errors] = value_u(c[10] + c[11]),
    };
    return writer_emit(w, TRACE_network, network);
}

static int take_network(struct metrics *m, struct writer *w) {
    char buf[16384], *save = NULL;
    uint64_t now = values_now();
    int used = 0, err = 0;
    if (!read_file(m, METRICS_NET, buf, sizeof buf))
        return 0;
    for (char *line = strtok_r(buf, "\n", &save); line && used < MAX_INTERFACES && !err;
         line = strtok_r(NULL, "\n", &save))
        err = take_interface(w, now, line, &used);
    return err;
}

void metrics_init(struct metrics *m) {
    for (int i = 0; i < METRICS_NFILES; i++)
        m->files[i] = (struct metrics_file){.fd = -1, .failed = 1};
}

void metrics_open(struct metrics *m) {
    for (int i = 0; i < METRICS_NFILES; i++)
        open_file(&m->files[i], file_paths[i]);
}

int metrics_take(struct metrics *m, struct writer *w, uint64_t agent_us, uint64_t handler_us) {
    int err = take_cpu_memory(m, w, agent_us, handler_us);
    if (!err)
        err = take_io(m, w);
    if (!err)
        err = take_network(m, w);
    return err;
}

void metrics_close(struct metrics *m) {
    for (int i = 0; i < METRICS_NFILES; i++)
        close_file(&m->files[i]);
}
