/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probing-fleet - writes the traces of a simulated training job, and its truth as JSON. See README.md and --help.
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fleet.h"

struct options opt = {.ranks = 16,
                      .nodes = 2,
                      .tp = 1,
                      .pp = 1,
                      .layers = 6,
                      .runs = 1,
                      .job = 4711,
                      .port = 29500,
                      .jobs = 1,
                      .threads = 1,
                      .seed = 1,
                      .truth = 1,
                      .world = 1,
                      .boots = 1,
                      .minutes = 1,
                      .hz = 10,
                      .step_ms = 100,
                      .vary = 1,
                      .offset = 0.01,
                      .drift = 20,
                      .wander = 0.1,
                      .jitter_us = 30,
                      .sigma = 0.8,
                      .outliers = 0.002,
                      .straggler = -1,
                      .stragglers = 1,
                      .hang = -1,
                      .kill = -1,
                      .late = -1,
                      .duplicate = -1,
                      .lose = -1,
                      .tear = -1,
                      .step_node = -1,
                      .suspend_node = -1,
                      .broken_node = -1};

enum { NUMBER, COUNT, TEXT, FLAG, AT };
/* All options: where the value goes, what it takes, what it means. AT stands for WHO:NUMBER or WHO:NUMBER:NUMBER. */
static const struct {
    const char *name, *arg, *help;
    int type;
    void *to;
    double *a, *b;
} table[] = {
    {"out", "DIR",
     "where to write: DIR/NODE/NODE-rRANK-PID.zst and DIR/truth.json; made if missing", TEXT,
     &opt.out, 0, 0},
    {"ranks", "N", "processes (16)", COUNT, &opt.ranks, 0, 0},
    {"nodes", "N", "machines that they are spread over (2)", COUNT, &opt.nodes, 0, 0},
    {"minutes", "X", "how long the job runs (1)", NUMBER, &opt.minutes, 0, 0},
    {"hz", "X", "samples a second of each thread (10)", NUMBER, &opt.hz, 0, 0},
    {"threads", "N", "threads of each process (1)", COUNT, &opt.threads, 0, 0},
    {"step-ms", "X", "work of a step (100)", NUMBER, &opt.step_ms, 0, 0},
    {"tp", "N", "tensor parallel ranks (1)", COUNT, &opt.tp, 0, 0},
    {"pp", "N", "stages of the pipeline (1)", COUNT, &opt.pp, 0, 0},
    {"layers", "N", "layers of the model (6)", COUNT, &opt.layers, 0, 0},
    {"seed", "N", "another seed, another job (1)", COUNT, NULL, 0, 0},
    {"jobs", "N", "processes that write (1)", COUNT, &opt.jobs, 0, 0},
    {"like", "TRACE", "a recording whose stacks are used (training.zst beside this program)", TEXT,
     &opt.like, 0, 0},
    {"vary", "N", "variations of each of its stacks (1)", NUMBER, &opt.vary, 0, 0},
    {"no-truth-events", NULL, "without the events that say the true time each second", FLAG,
     &opt.truth, 0, 0},
    {"no-world", NULL, "no collective of all ranks: groups of tp, pp and dp alone", FLAG,
     &opt.world, 0, 0},
    {"no-boot-ids", NULL, "traces do not say which boot of a machine they are of", FLAG, &opt.boots,
     0, 0},
    {"offset", "S", "clocks of nodes are off by up to so many seconds (0.01)", NUMBER, &opt.offset,
     0, 0},
    {"drift", "PPM", "and drift by up to so many parts in a million (20)", NUMBER, &opt.drift, 0,
     0},
    {"wander", "PPM", "and swing by so many, slowly (0.1)", NUMBER, &opt.wander, 0, 0},
    {"jitter", "US", "median of the network's jitter, log-normal (30)", NUMBER, &opt.jitter_us, 0,
     0},
    {"sigma", "X", "its width (0.8)", NUMBER, &opt.sigma, 0, 0},
    {"outliers", "SHARE", "of collectives that a rank leaves 300 times later than that (0.002)",
     NUMBER, &opt.outliers, 0, 0},
    {"asymmetry", "US", "from a machine to the next the network takes so much longer than back (0)",
     NUMBER, &opt.asymmetry_us, 0, 0},
    {"ntp-step", "NODE:AT:S", "at AT seconds that node's time of day jumps by S", AT,
     &opt.step_node, &opt.step_at, &opt.step_s},
    {"suspend", "NODE:AT:S", "at AT that machine sleeps for S", AT, &opt.suspend_node,
     &opt.suspend_at, &opt.suspend_s},
    {"broken-clock", "NODE:YEARS", "that node's time of day is so many years off", AT,
     &opt.broken_node, &opt.broken_years, 0},
    {"straggler", "RANK:MS", "that rank's steps take so much longer", AT, &opt.straggler,
     &opt.straggler_ms, 0},
    {"stragglers", "N", "so do those of the ranks after it: N ranks in all (1)", COUNT,
     &opt.stragglers, 0, 0},
    {"slow-data", NULL, "they wait for data so much longer, instead of working", FLAG,
     &opt.slow_data, 0, 0},
    {"hang", "RANK:AT", "from AT on that rank comes to no collective", AT, &opt.hang, &opt.hang_at,
     0},
    {"kill", "RANK:AT", "at AT that rank is killed (-9), the others fail for it", AT, &opt.kill,
     &opt.kill_at, 0},
    {"raise", NULL, "that rank raises an exception then, and ends a second later", FLAG,
     &opt.raises, 0, 0},
    {"launcher", "S", "which ends all others so long after that one, by SIGTERM", NUMBER,
     &opt.launcher, 0, 0},
    {"late", "RANK:AT", "that rank is recorded from AT on", AT, &opt.late, &opt.late_at, 0},
    {"duplicate", "RANK", "two processes say they are that rank", AT, &opt.duplicate, 0, 0},
    {"lose", "RANK", "that rank's trace is missing", AT, &opt.lose, 0, 0},
    {"tear", "RANK", "that rank's trace is cut in its last block", AT, &opt.tear, 0, 0},
    {"runs", "N", "jobs one after the other in the same directories (1)", COUNT, &opt.runs, 0, 0},
    {"job", "N", "the number of the job; two with the same seed share the machines (4711)", COUNT,
     &opt.job, 0, 0},
    {"port", "N", "of its rendezvous address: another training of the same job (29500)", COUNT,
     &opt.port, 0, 0},
    {"restarts", NULL, "those are one job, whose ranks its launcher starts again", FLAG,
     &opt.restarts, 0, 0},
    {"quiet", NULL, "no summary", FLAG, &opt.quiet, 0, 0},
};
#define NTABLE (sizeof table / sizeof *table)

static void help(void) {
    puts(
        "usage: probing-fleet --out DIR [OPTION...]\n\n"
        "Writes the traces of a simulated training job, and what is true of it into DIR/truth.json.\n"
        "The same options give the same traces. Times are seconds since the job began.\n");
    for (size_t i = 0; i < NTABLE; i++) {
        char left[40];
        snprintf(left, sizeof left, "--%s%s%s", table[i].name, table[i].arg ? " " : "",
                 table[i].arg ? table[i].arg : "");
        printf("  %-26s %s\n", left, table[i].help);
    }
}

static int wrong(const char *fmt, const char *a, const char *b) {
    fprintf(stderr, "probing-fleet: ");
    fprintf(stderr, fmt, a, b);
    fprintf(stderr, " (--help)\n");
    return 2;
}

static int number(const char *p, char **end, double *to) {
    *to = strtod(p, end);
    return *end == p ? -1 : 0;
}

static int set(size_t i, const char *arg) {
    char *end = NULL;
    double x = 0;

    switch (table[i].type) {
    case TEXT:
        *(const char **)table[i].to = arg;
        return 0;
    case FLAG:
        *(int *)table[i].to = strncmp(table[i].name, "no-", 3) != 0;
        return 0;
    case NUMBER:
        if (number(arg, &end, &x) || *end || !(x >= 0 && x < 1e9))
            return -1;
        *(double *)table[i].to = x;
        return 0;
    case COUNT:
        if (number(arg, &end, &x) || *end || !(x >= 0 && x <= 1e6))
            return -1;
        if (table[i].to)
            *(unsigned *)table[i].to = (unsigned)x;
        else
            opt.seed = (uint64_t)x;
        return 0;
    }
    if (number(arg, &end, &x) || !(x >= 0 && x <= 1e6))
        return -1;
    *(int *)table[i].to = (int)x;
    for (int k = 0; k < 2; k++) {
        double *to = k ? table[i].b : table[i].a;
        if (to && (*end != ':' || number(end + 1, &end, to)))
            return -1;
    }
    return *end ? -1 : 0;
}

static int arguments(int argc, char **argv) {
    struct option options[NTABLE + 2];
    int c, at;

    memset(options, 0, sizeof options);
    for (size_t i = 0; i < NTABLE; i++)
        options[i] =
            (struct option){table[i].name, table[i].arg ? required_argument : no_argument, NULL, 1};
    options[NTABLE] = (struct option){"help", no_argument, NULL, 'h'};
    while ((c = getopt_long(argc, argv, "h", options, &at)) != -1) {
        if (c == 'h') {
            help();
            exit(0);
        }
        if (c != 1)
            return 2;
        if (set((size_t)at, optarg) != 0)
            return wrong("--%s: %s is not what it takes", table[at].name, optarg);
    }
    if (optind < argc)
        return wrong("%s%s: all is said by options", argv[optind], "");
    if (!opt.out)
        return wrong("%s%s: where to?", "--out DIR", "");
    if (!opt.ranks || !opt.nodes || !opt.tp || !opt.pp || !opt.jobs || !opt.threads || !opt.runs ||
        opt.nodes > opt.ranks || opt.ranks % (opt.tp * opt.pp) || opt.hz <= 0 || opt.step_ms < 1)
        return wrong("%s%s",
                     "ranks must be a multiple of tp x pp and at least nodes, and nothing 0", "");
    return 0;
}

/* Cuts the file in the middle of its last block. */
static int tear(const char *path) {
    struct stat st;

    return stat(path, &st) != 0 || truncate(path, st.st_size - 100) != 0 ? -errno : 0;
}

static int64_t run_start(unsigned run) {
    return run * ((int64_t)(opt.minutes * 60e9) + 120 * SECOND);
}

static int write_ranks(unsigned run, unsigned first, unsigned n, uint64_t *samples) {
    struct story *s = calloc(n, sizeof *s);
    char path[4096];
    int err = s ? timeline(run, run_start(run), first, n, s) : -ENOMEM;

    for (unsigned i = 0; !err && i < n; i++) {
        unsigned r = first + i;
        if ((int)r != opt.lose)
            err = rank_write(run, run_start(run), r, &s[i], 0, samples);
        if (!err && (int)r == opt.duplicate)
            err = rank_write(run, run_start(run), r, &s[i], 1, samples);
        rank_path(path, sizeof path, run, r, 0);
        if (!err && (int)r == opt.tear)
            err = tear(path);
    }
    for (unsigned i = 0; s && i < n; i++)
        free(s[i].span);
    free(s);
    return err;
}

/* Writes the ranks first ... last. A part has as many ranks as fit in half a gigabyte, because each part simulates the whole job. */
static int write_part(unsigned first, unsigned last, uint64_t *samples) {
    double steps = opt.minutes * 60e3 / opt.step_ms + 10;
    double fit = 512e6 / opt.jobs / (steps * (9 + 4 * opt.pp) * sizeof(struct span_of));
    unsigned at_once = fit < 1 ? 1 : fit > 1e5 ? 100000 : (unsigned)fit;
    int err = 0;

    for (unsigned run = 0; run < opt.runs; run++)
        for (unsigned r = first; !err && r < last; r += at_once)
            err = write_ranks(run, r, last - r < at_once ? last - r : at_once, samples);
    return err;
}

static int write_all(uint64_t *samples) {
    unsigned jobs = opt.jobs < opt.ranks ? opt.jobs : opt.ranks;
    int pipes[2], err = 0, status;

    if (jobs == 1)
        return write_part(0, opt.ranks, samples);
    if (pipe(pipes) != 0)
        return -errno;
    for (unsigned i = 0; i < jobs; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            uint64_t mine = 0;
            err = write_part((unsigned)((uint64_t)opt.ranks * i / jobs),
                             (unsigned)((uint64_t)opt.ranks * (i + 1) / jobs), &mine);
            if (write(pipes[1], &mine, sizeof mine) != sizeof mine)
                err = -EIO;
            _exit(err != 0);
        }
        err = pid < 0 ? -errno : err;
    }
    close(pipes[1]);
    for (unsigned i = 0; i < jobs; i++) {
        uint64_t theirs;
        if (wait(&status) < 0 || status != 0)
            err = err ? err : -EIO;
        else if (read(pipes[0], &theirs, sizeof theirs) == sizeof theirs)
            *samples += theirs;
    }
    close(pipes[0]);
    return err;
}

static int write_truth(uint64_t samples) {
    char path[4096];
    snprintf(path, sizeof path, "%s/truth.json", opt.out);
    FILE *f = fopen(path, "w");

    if (!f)
        return -errno;
    fprintf(
        f,
        "{\"epoch_ns\": %lld, \"ranks\": %u, \"nodes\": %u, \"runs\": %u, \"minutes\": %g, \"samples\": %llu,\n",
        (long long)EPOCH, opt.ranks, opt.nodes, opt.runs, opt.minutes, (unsigned long long)samples);
#define ONE(what, who, ...)                                                                        \
    if ((who) >= 0)                                                                                \
    fprintf(f, " \"" what "\": {" __VA_ARGS__), fprintf(f, "},\n")
    ONE("straggler", opt.straggler, "\"rank\": %d, \"ms\": %g", opt.straggler, opt.straggler_ms);
    ONE("hang", opt.hang, "\"rank\": %d, \"at\": %g", opt.hang, opt.hang_at);
    ONE("first_failure", opt.kill, "\"rank\": %d, \"at\": %g, \"kind\": \"%s\"", opt.kill,
        opt.kill_at, opt.raises ? "exception" : "killed");
    ONE("late", opt.late, "\"rank\": %d, \"at\": %g", opt.late, opt.late_at);
    ONE("lost", opt.lose, "\"rank\": %d", opt.lose);
    ONE("torn", opt.tear, "\"rank\": %d", opt.tear);
    ONE("duplicate", opt.duplicate, "\"rank\": %d", opt.duplicate);
    ONE("ntp_step", opt.step_node, "\"node\": %d, \"at\": %g, \"seconds\": %g", opt.step_node,
        opt.step_at, opt.step_s);
    ONE("suspend", opt.suspend_node, "\"node\": %d, \"at\": %g, \"seconds\": %g", opt.suspend_node,
        opt.suspend_at, opt.suspend_s);
    ONE("broken_clock", opt.broken_node, "\"node\": %d, \"years\": %g", opt.broken_node,
        opt.broken_years);
#undef ONE
    fprintf(f, " \"clocks\": [\n");
    for (unsigned i = 0; i < opt.nodes; i++)
        fprintf(
            f,
            "  {\"node\": \"%s\", \"boot_id\": \"%s\", \"offset_ns\": %lld, \"drift_ppm\": %.6f, \"mono0_ns\": %llu}%s\n",
            nodes[i].name, nodes[i].boot_id, (long long)nodes[i].offset, nodes[i].drift * 1e6,
            (unsigned long long)nodes[i].mono0, i + 1 < opt.nodes ? "," : "");
    fprintf(f, " ]}\n");
    return fclose(f) ? -errno : 0;
}

int main(int argc, char **argv) {
    char path[4096], *slash;
    uint64_t samples = 0;
    int rc = arguments(argc, argv);

    if (rc)
        return rc;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 16);
    if (!opt.like && n > 0) {
        path[n] = 0;
        slash = strrchr(path, '/');
        strcpy(slash + 1, "training.zst");
        opt.like = path;
    }
    if (recorded_load(opt.like) != 0)
        return 3;
    int err = clocks_make();
    if (!err && mkdir(opt.out, 0777) != 0 && errno != EEXIST)
        err = -errno;
    char *whole = err ? NULL : realpath(opt.out, NULL); /* traces are opened by absolute paths */
    if (whole)
        opt.out = whole;
    for (unsigned i = 0; !err && i < opt.nodes; i++) {
        char dir[4096];
        snprintf(dir, sizeof dir, "%s/%s", opt.out, nodes[i].name);
        err = mkdir(dir, 0777) != 0 && errno != EEXIST ? -errno : 0;
    }
    if (!err)
        err = write_all(&samples);
    if (!err)
        err = write_truth(samples);
    if (err) {
        fprintf(stderr, "probing-fleet: %s: %s\n", opt.out, strerror(-err));
        return 3;
    }
    if (!opt.quiet)
        fprintf(stderr, "probing-fleet: %s: %u ranks on %u nodes, %llu samples\n", opt.out,
                opt.ranks, opt.nodes, (unsigned long long)samples);
    return 0;
}
