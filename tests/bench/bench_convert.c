/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_convert - how fast samples become rows, and in how much memory.
 *
 *     bench_convert [MILLIONS]           converts N and 4 N million samples (default 2), prints Mrow/s and peak RSS
 *     bench_convert --traces NAME FILE|DIR...  converts these
 *     bench_convert --make N FILE.zst    only makes a trace of N samples
 *     bench_convert --many functions|threads|stacks|names N FILE.zst    one in which each sample has another
 *
 * 500 distinct Python stacks, 4 threads, no native frames. Each conversion runs in a process of its own, so that its peak memory is its
 * own. "x a plain loop": how long the same rows take that a prepared INSERT puts, one by one out of memory, into the same tables of an empty
 * database without a journal. That comes next, so that both meet the same machine.
 */
#include <limits.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
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

/* CPU time of this thread. */
static double cpu_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct spent {
    double wall, cpu;
};

static struct spent begin(void) {
    return (struct spent){now(), cpu_now()};
}

static void add_since(struct spent *sum, struct spent begun) {
    sum->wall += now() - begun.wall;
    sum->cpu += cpu_now() - begun.cpu;
}

#define CHUNK   10000
#define COLUMNS 48

static void check(int rc, sqlite3 *db) {
    if (rc != SQLITE_OK && rc != SQLITE_DONE && rc != SQLITE_ROW) {
        fprintf(stderr, "%s\n", sqlite3_errmsg(db));
        exit(1);
    }
}

/* Copies one table's rows from one database into another. Returns the time that the inserts alone take, and adds the number of rows to *rows. */
static void copy_table(sqlite3 *from, sqlite3 *to, const char *table, uint64_t *rows,
                       struct spent *spent) {
    static sqlite3_value *v[CHUNK][COLUMNS];
    sqlite3_stmt *in, *out;
    char *sql = sqlite3_mprintf("SELECT * FROM %w", table);

    check(sqlite3_prepare_v2(from, sql, -1, &in, NULL), from);
    sqlite3_free(sql);
    int n = sqlite3_column_count(in), got;
    char marks[2 * COLUMNS + 1] = "?";
    for (int i = 1; i < n; i++)
        strcat(marks, ",?");
    sql = sqlite3_mprintf("INSERT INTO %w VALUES(%s)", table, marks);
    check(sqlite3_prepare_v2(to, sql, -1, &out, NULL), to);
    sqlite3_free(sql);
    do {
        for (got = 0; got < CHUNK && sqlite3_step(in) == SQLITE_ROW; got++)
            for (int i = 0; i < n; i++)
                v[got][i] = sqlite3_value_dup(sqlite3_column_value(in, i));
        struct spent t0 = begin();
        for (int r = 0; r < got; r++) {
            for (int i = 0; i < n; i++) {
                if (sqlite3_value_type(v[r][i]) == SQLITE_INTEGER)
                    sqlite3_bind_int64(out, i + 1, sqlite3_value_int64(v[r][i]));
                else
                    sqlite3_bind_value(out, i + 1, v[r][i]);
            }
            check(sqlite3_step(out), to);
            sqlite3_reset(out);
        }
        add_since(spent, t0);
        for (int r = 0; r < got; r++)
            for (int i = 0; i < n; i++)
                sqlite3_value_free(v[r][i]);
        *rows += (uint64_t)got;
    } while (got == CHUNK);
    sqlite3_finalize(in);
    sqlite3_finalize(out);
}

/* Returns the seconds that a plain loop takes for the rows of a database. */
static struct spent plain_loop(const char *db, uint64_t *rows) {
    char name[96];
    sqlite3 *from, *to;
    sqlite3_stmt *tables;
    struct spent spent = {0};

    snprintf(name, sizeof name, "%s.plain", db);
    unlink(name);
    check(sqlite3_open(db, &from), NULL);
    check(sqlite3_open(name, &to), NULL);
    check(sqlite3_exec(to, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN", NULL, NULL,
                       NULL),
          to);
    check(
        sqlite3_prepare_v2(
            from,
            "SELECT sql, name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
            -1, &tables, NULL),
        from);
    *rows = 0;
    while (sqlite3_step(tables) == SQLITE_ROW) {
        check(sqlite3_exec(to, (const char *)sqlite3_column_text(tables, 0), NULL, NULL, NULL), to);
        copy_table(from, to, (const char *)sqlite3_column_text(tables, 1), rows, &spent);
    }
    struct spent t0 = begin();
    check(sqlite3_exec(to, "COMMIT", NULL, NULL, NULL), to);
    add_since(&spent, t0);
    sqlite3_finalize(tables);
    sqlite3_close(from);
    sqlite3_close(to);
    unlink(name);
    return spent;
}

static int convert_once(const char *what, const char *const *traces, int n, const char *db,
                        uint64_t samples) {
    struct inputs in = {0};
    struct convert_options opt = {.out = db, .force = 1, .say = say};
    struct convert_result res;
    struct rusage ru, main_thread;
    uint64_t rows;
    double t0 = now();

    for (int i = 0; i < n; i++) {
        int err = inputs_add(&in, traces[i], 0);
        if (err) {
            say(NULL, traces[i], inputs_strerror(err));
            return 1;
        }
    }
    if (convert(&in, &opt, &res)) {
        fprintf(stderr, "%s\n", res.error);
        return 1;
    }
    double t = now() - t0;
    inputs_free(&in);
    getrusage(RUSAGE_SELF, &ru);
    getrusage(RUSAGE_THREAD, &main_thread);
    struct spent plain = plain_loop(db, &rows);
    printf(
        "convert %s: %.1f M samples, %.1f MB trace -> %.1f MB database (%.1f x) in %.2f s: %.2f Mrow/s, %.2f x a plain loop "
        "(%.2f x by the CPU time of the thread that inserts); "
        "CPU %.2f s, %.0f ns a row of it in the inserting thread; "
        "peak RSS %.1f MB\n",
        what, (double)res.samples / 1e6, (double)res.bytes_in / 1e6, (double)res.bytes_out / 1e6,
        (double)res.bytes_out / (double)res.bytes_in, t, (double)rows / t / 1e6, plain.wall / t,
        plain.cpu / cpu(&main_thread), cpu(&ru), cpu(&main_thread) * 1e9 / (double)rows,
        (double)ru.ru_maxrss / 1024);
    return samples && res.samples != samples;
}

/* Runs the conversion in a process of its own. */
static int in_child(const char *what, const char *const *traces, int n, const char *db,
                    uint64_t samples) {
    int rc = 1;

    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        exit(convert_once(what, traces, n, db, samples));
    if (pid < 0 || waitpid(pid, &rc, 0) < 0)
        rc = 1;
    unlink(db);
    return rc;
}

/* Makes a trace whose n samples each have another one of something that a converter has to tell apart. */
static int make_many(const char *dir, const char *kind, const char *n, const char *trace) {
    static const char *const kinds[] = {[SYNTHETIC_FUNCTIONS] = "functions",
                                        [SYNTHETIC_THREADS] = "threads",
                                        [SYNTHETIC_STACKS] = "stacks",
                                        [SYNTHETIC_NAMES] = "names"};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i], kind) == 0)
            return synthetic_many(trace, dir, (enum synthetic_many)i, strtoull(n, NULL, 10));
    fprintf(stderr, "--many functions, threads, stacks or names, not %s\n", kind);
    return 1;
}

/* Makes the name absolute, because a trace's writer requires a name that does not depend on the working directory. */
static const char *whole_name(const char *file, char name[PATH_MAX]) {
    char here[PATH_MAX / 2];

    if (*file == '/' || !getcwd(here, sizeof here))
        return file;
    snprintf(name, PATH_MAX, "%s/%s", here, file);
    return name;
}

/* Returns the exit code of a command that makes a trace. err: 0, -errno, or 1 if the error was already reported. */
static int made(const char *trace, int err) {
    if (err < 0)
        say(NULL, trace, strerror(-err));
    return err != 0;
}

int main(int argc, char **argv) {
    char name[PATH_MAX];
    struct synthetic s = {.threads = 4, .stacks = 500, .depth = 25};
    char dir[] = "/tmp/bench_convert.XXXXXX", trace[64], db[64];
    const char *one = trace;
    int rc = 0;

    if (!mkdtemp(dir))
        return 1;
    snprintf(trace, sizeof trace, "%s/t.zst", dir);
    snprintf(db, sizeof db, "%s/t.db", dir);
    if (argc == 4 && strcmp(argv[1], "--make") == 0) {
        s.samples = strtoull(argv[2], NULL, 10);
        rc = made(argv[3], synthetic_trace(whole_name(argv[3], name), dir, &s));
        rmdir(dir);
        return rc;
    }
    if (argc > 3 && strcmp(argv[1], "--traces") == 0) {
        rc = in_child(argv[2], (const char *const *)argv + 3, argc - 3, db, 0);
        rmdir(dir);
        return rc != 0;
    }
    if (argc == 5 && strcmp(argv[1], "--many") == 0) {
        rc = made(argv[4], make_many(dir, argv[2], argv[3], whole_name(argv[4], name)));
        rmdir(dir);
        return rc;
    }
    double millions = argc > 1 ? atof(argv[1]) : 2;
    for (int factor = 1; factor <= 4 && !rc; factor *= 4) {
        s.samples = (uint64_t)(millions * 1e6 * factor);
        rc = synthetic_trace(trace, dir, &s) != 0;
        if (!rc)
            rc = in_child("synthetic", &one, 1, db, s.samples);
        unlink(trace);
    }
    rmdir(dir);
    return rc != 0;
}
