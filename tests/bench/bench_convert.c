/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_convert - how fast samples become rows, and in how much memory.
 *
 *     bench_convert [MILLIONS]          converts N and 4 N million samples (default 2), prints Mrow/s and peak RSS
 *     bench_convert --make N FILE.zst   only makes a trace of N samples
 *
 * 500 distinct Python stacks, 4 threads, no native frames. Each conversion runs in a process of its own, so that
 * its peak memory is its own.
 */
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "converter/convert.h"
#include "tests/unit/synthetic.h"

static void say(void *ctx, const char *file, const char *line) {
    (void)ctx;
    fprintf(stderr, "%s: %s\n", file, line);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double cpu(const struct rusage *r) {
    return (double)(r->ru_utime.tv_sec + r->ru_stime.tv_sec) +
           (double)(r->ru_utime.tv_usec + r->ru_stime.tv_usec) / 1e6;
}

static int convert_once(const char *trace, const char *db, uint64_t samples) {
    struct inputs in = {0};
    struct convert_options opt = {.out = db, .force = 1, .say = say};
    struct convert_result res;
    struct rusage ru, main_thread;
    double t0 = now();

    if (inputs_add(&in, trace, 0) || convert(&in, &opt, &res)) {
        fprintf(stderr, "%s\n", res.error);
        return 1;
    }
    double t = now() - t0;
    inputs_free(&in);
    getrusage(RUSAGE_SELF, &ru);
    getrusage(RUSAGE_THREAD, &main_thread);
    printf("convert: %.1f M samples, %.1f MB trace -> %.1f MB database in %.2f s: %.2f Mrow/s; "
           "CPU %.2f s, %.0f ns a row of it in the inserting thread; "
           "peak RSS %.1f MB\n",
           (double)res.samples / 1e6, (double)res.bytes_in / 1e6, (double)res.bytes_out / 1e6, t,
           (double)res.samples / t / 1e6, cpu(&ru), cpu(&main_thread) * 1e9 / (double)res.samples,
           (double)ru.ru_maxrss / 1024);
    return res.samples == samples ? 0 : 1;
}

int main(int argc, char **argv) {
    struct synthetic s = {.threads = 4, .stacks = 500, .depth = 25};
    char dir[] = "/tmp/bench_convert.XXXXXX", trace[64], db[64];
    int rc = 0;

    if (!mkdtemp(dir))
        return 1;
    if (argc == 4 && strcmp(argv[1], "--make") == 0) {
        s.samples = strtoull(argv[2], NULL, 10);
        rc = synthetic_trace(argv[3], dir, &s) != 0;
        rmdir(dir);
        return rc;
    }
    double millions = argc > 1 ? atof(argv[1]) : 2;
    snprintf(trace, sizeof trace, "%s/t.zst", dir);
    snprintf(db, sizeof db, "%s/t.db", dir);
    for (int factor = 1; factor <= 4 && !rc; factor *= 4) {
        s.samples = (uint64_t)(millions * 1e6 * factor);
        rc = synthetic_trace(trace, dir, &s) != 0;
        fflush(stdout);
        pid_t pid = rc ? -1 : fork();
        if (pid == 0)
            exit(convert_once(trace, db, s.samples));
        if (pid < 0 || waitpid(pid, &rc, 0) < 0)
            rc = 1;
        unlink(trace);
        unlink(db);
    }
    rmdir(dir);
    return rc != 0;
}
