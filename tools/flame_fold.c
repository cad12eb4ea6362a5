/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HOW IT WORKS: the samples are added up by thread and stack (flame_sums.c); each sum then walks its stack
 * from the outermost frame inwards through the tree. Tables: converter/schema/20_samples.sql.
 */
#include "flame_fold.h"

#include <stdlib.h>
#include <string.h>

#include "../converter/keys.h"
#include "flame_sums.h"

/* What a frame is, beyond its kind. */
enum part {
    UNKNOWN,  /* not looked up yet */
    ABSENT,   /* not to be shown */
    PYTHON,   /* Python code */
    IMPORT,   /* Python code of importlib, which is plumbing as well */
    PLUMBING, /* native code of the interpreter */
    FOREIGN,  /* other native code */
};

struct shown {
    uint32_t label;
    enum part part;
    uint32_t library; /* of native code: the label that stands for its whole library; else 0 */
    uint32_t place;   /* the label of its line; 0: lines are not shown, or it is not known */
    uint32_t line;    /* 0: not known */
    int64_t id;
};

struct fold_stacks {
    struct flame *f;
    const struct fold *fold;
    sqlite3_stmt *frames; /* gives the frames of one stack, outermost first */
    struct shown *shown;  /* by frame id */
    uint64_t *weight;     /* by frame id, too: weight of all samples with this frame */
    int64_t nframes;
    struct shown *stack; /* the stack in work */
    size_t cap;
    sqlite3_stmt *frame; /* gives one frame's names */
};

static const char *text(sqlite3_stmt *st, int i) {
    const char *t = (const char *)sqlite3_column_text(st, i);
    return t ? t : "";
}

static int query_number(sqlite3 *db, const char *sql, double *out) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

    if (rc != SQLITE_OK)
        return rc;
    rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        *out = sqlite3_column_double(st, 0);
    sqlite3_finalize(st);
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

/* Returns whether code came with Python or a package, which its folder shows. */
static int is_library(const char *file) {
    return strstr(file, "/site-packages/") || strstr(file, "/dist-packages/") ||
           strstr(file, "/lib/python3") || strstr(file, "/lib64/python3") ||
           strncmp(file, "<frozen ", 8) == 0;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* Returns whether a module is the interpreter itself: python3.11, libpython3.11.so.1.0, libpython3.so. */
static int is_interpreter(const char *module) {
    const char *base = base_name(module);

    if (strncmp(base, "lib", 3) == 0)
        base += 3;
    return strncmp(base, "python3", 7) == 0 && !strstr(base, "torch");
}

/* "ns::f(int, g(char)) const" -> "ns::f". Overloads are one frame; operator() stays whole. */
static void cut_parameters(char *name) {
    char *end = name + strlen(name), *p;
    int depth = 0;

    if (end - name > 6 && strcmp(end - 6, " const") == 0)
        end -= 6;
    if (end == name || end[-1] != ')')
        return;
    for (p = end - 1; p >= name; p--) {
        depth += *p == ')';
        depth -= *p == '(';
        if (depth == 0)
            break;
    }
    if (p > name && !(p - name >= 8 && strncmp(p - 8, "operator", 8) == 0))
        *p = '\0';
}

/*
 * Writes the name that people know a native function by: without the symbol version, and without the marks
 * that compilers put on a function's clones and parts. An address without a name ("libx.so+0x12") gets the
 * name of its library, as otherwise each address would be a frame of its own.
 */
static void native_name(const char *name, const char *module, char *buf, size_t n) {
    static const char *const marks[] = {"@",      ".lto_priv.", ".constprop.",
                                        ".isra.", ".part.",     ".cold"};
    const char *base = base_name(module);
    size_t len = strlen(base);

    snprintf(buf, n, "%s", name);
    if (len && strncmp(name, base, len) == 0 && strncmp(name + len, "+0x", 3) == 0) {
        snprintf(buf, n, "%s", base);
        return;
    }
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        char *at = strstr(buf, marks[i]);
        if (at && at > buf)
            *at = '\0';
    }
    cut_parameters(buf);
}

/* Returns what frame `id` is shown as. */
static struct shown look_up(struct fold_stacks *s, int64_t id, int *rc) {
    struct shown shown = {.part = ABSENT};
    char name[1000];

    if (id < 0 || id >= s->nframes)
        return shown;
    if (s->shown[id].part != UNKNOWN)
        return s->shown[id];
    sqlite3_bind_int64(s->frame, 1, id);
    int step = sqlite3_step(s->frame);
    if (step == SQLITE_ROW) {
        int native = sqlite3_column_int(s->frame, 0);
        const char *file = text(s->frame, 2), *module = text(s->frame, 3);
        shown.id = id;
        shown.line = (uint32_t)sqlite3_column_int(s->frame, 4);
        if (!native) {
            shown.part = strncmp(file, "<frozen importlib", 17) == 0 ? IMPORT : PYTHON;
            shown.label = flame_label(s->f, text(s->frame, 1), file,
                                      is_library(file) ? FLAME_LIBRARY : FLAME_USER);
            if (s->fold->lines && shown.line) {
                snprintf(name, sizeof name, "%s:%u", base_name(file), shown.line);
                shown.place =
                    flame_label(s->f, name, file, is_library(file) ? FLAME_LIBRARY : FLAME_USER);
            }
        } else if (!s->fold->python) {
            native_name(text(s->frame, 1), module, name, sizeof name);
            shown.part = is_interpreter(module) ? PLUMBING : FOREIGN;
            shown.label = flame_label(s->f, name, *module ? module : file, FLAME_NATIVE);
            shown.library =
                flame_label(s->f, base_name(module), *module ? module : file, FLAME_NATIVE);
        }
    } else if (step != SQLITE_DONE) {
        *rc = step;
    }
    sqlite3_reset(s->frame);
    return s->shown[id] = shown;
}

/* Removes the interpreter's own frames from a stack, outermost frame first. Returns the number of frames that stay. */
static size_t drop_plumbing(struct shown *stack, size_t n) {
    size_t first = 0, tail = n, kept = 0;

    while (first < n && stack[first].part != PYTHON && stack[first].part != IMPORT)
        first++;
    if (first == n) /* not a Python thread: keep all frames */
        return n;
    while (tail > first && (stack[tail - 1].part == PLUMBING || stack[tail - 1].part == IMPORT))
        tail--;
    for (size_t i = first; i < n; i++) {
        if (i >= tail || stack[i].part == PYTHON || stack[i].part == FOREIGN)
            stack[kept++] = stack[i];
    }
    return kept;
}

int fold_stack(struct fold_stacks *s, uint32_t node, int64_t stack, uint64_t weight,
               uint32_t *out) {
    int rc = SQLITE_OK, step;
    size_t n = 0;

    sqlite3_bind_int64(s->frames, 1, stack);
    while ((step = sqlite3_step(s->frames)) == SQLITE_ROW && rc == SQLITE_OK) {
        struct shown shown = look_up(s, sqlite3_column_int64(s->frames, 0), &rc);
        if (shown.part == ABSENT)
            continue;
        if (n == s->cap) {
            size_t cap = s->cap ? s->cap * 2 : 256;
            struct shown *p = realloc(s->stack, cap * sizeof *p);
            if (!p) {
                rc = SQLITE_NOMEM;
                break;
            }
            s->stack = p;
            s->cap = cap;
        }
        s->stack[n++] = shown;
    }
    sqlite3_reset(s->frames);
    if (rc != SQLITE_OK || step != SQLITE_DONE)
        return rc != SQLITE_OK ? rc : step;
    if (!s->fold->all_frames)
        n = drop_plumbing(s->stack, n);
    size_t leaf = n;
    while (leaf > 0 && !s->stack[leaf - 1].place)
        leaf--;
    for (size_t i = 0; i < n; i++) {
        const struct shown *f = &s->stack[i];
        s->weight[f->id] += weight;
        /* Functions of a library that have no name: between named ones they say nothing and are left out; at
         * the end of a stack they become one frame. */
        if (i && f->library && f->label == f->library && s->stack[i - 1].library == f->library &&
            (f->label == s->stack[i - 1].label || (i + 1 < n && !s->fold->all_frames)))
            continue;
        node = flame_child(s->f, node, f->label);
        if (i + 1 == leaf)
            node = flame_child(s->f, node, f->place);
    }
    *out = node;
    return SQLITE_OK;
}

int fold_open(struct fold_stacks **out, struct flame *f, sqlite3 *db, const struct fold *fold) {
    static const char frames_sql[] =
        "SELECT frame FROM stack_frame WHERE stack = ?1 ORDER BY depth DESC";
    static const char frame_sql[] =
        "SELECT f.type, f.name, f.file, f.module, r.line FROM frame r JOIN function f ON f.id = r.function"
        " WHERE r.id = ?1";
    struct fold_stacks *s = calloc(1, sizeof *s);
    double frames = 0;
    int rc;

    *out = s;
    if (!s)
        return SQLITE_NOMEM;
    s->f = f;
    s->fold = fold;
    if ((rc = query_number(db, "SELECT max(id) + 1 FROM frame", &frames)) != SQLITE_OK ||
        (rc = sqlite3_prepare_v2(db, frames_sql, -1, &s->frames, NULL)) != SQLITE_OK ||
        (rc = sqlite3_prepare_v2(db, frame_sql, -1, &s->frame, NULL)) != SQLITE_OK)
        return rc;
    s->nframes = (int64_t)frames;
    s->shown = calloc((size_t)s->nframes + 1, sizeof *s->shown);
    s->weight = calloc((size_t)s->nframes + 1, sizeof *s->weight);
    return s->shown && s->weight ? SQLITE_OK : SQLITE_NOMEM;
}

void fold_close(struct fold_stacks *s) {
    if (!s)
        return;
    for (int64_t i = 0; s->shown && s->weight && i < s->nframes; i++) {
        if (s->shown[i].line)
            flame_line(s->f, s->shown[i].label, s->shown[i].line, s->weight[i]);
    }
    free(s->weight);
    sqlite3_finalize(s->frames);
    sqlite3_finalize(s->frame);
    free(s->shown);
    free(s->stack);
    free(s);
}

/* ---- the groups at the root ---- */

/* Returns "python3 train.py" for "/usr/bin/python3 train.py": the interpreter's folder is of no interest. */
static const char *short_command(const char *command) {
    size_t n = strcspn(command, " ");
    const char *p = command + n;

    while (p > command && p[-1] != '/')
        p--;
    return p;
}

/* The columns of thread_sql. */
enum { PROCESS, PID, RANK, HOST, COMMAND, GROUP };
static const char thread_sql[] =
    "SELECT coalesce(t.program, t.id), t.pid, t.rank, t.host, t.command, " FOLD_GROUP FOLD_THREADS;

static uint32_t process_node(struct fold_stacks *s, sqlite3_stmt *st) {
    char name[400], rank[40] = "";

    if (sqlite3_column_type(st, RANK) != SQLITE_NULL)
        snprintf(rank, sizeof rank, "rank %d: ", sqlite3_column_int(st, RANK));
    snprintf(name, sizeof name, "%s%.200s (pid %lld on %.100s)", rank,
             short_command(text(st, COMMAND)), sqlite3_column_int64(st, PID), text(st, HOST));
    return flame_child(s->f, FLAME_ROOT, flame_label(s->f, name, "", FLAME_GROUP));
}

static void take_facts(struct fold *fold, sqlite3_stmt *st) {
    snprintf(fold->command, sizeof fold->command, "%s", short_command(text(st, COMMAND)));
    snprintf(fold->host, sizeof fold->host, "%s", text(st, HOST));
    fold->first_rank =
        sqlite3_column_type(st, RANK) == SQLITE_NULL ? -1 : sqlite3_column_int64(st, RANK);
    fold->first_pid = sqlite3_column_int64(st, PID);
}

/* Steps to the row of a thread. Returns SQLITE_ROW, SQLITE_DONE if the thread is not wanted, or an error. */
static int find_thread(sqlite3_stmt *st, int64_t thread) {
    sqlite3_reset(st);
    sqlite3_bind_int64(st, 1, thread);
    return sqlite3_step(st);
}

/* Counts processes, and finds whether threads are in several groups: a single group needs no frame of its own. */
static int count_groups(const struct sums *sums, sqlite3_stmt *st, unsigned *processes,
                        int *several) {
    char first[200] = "";
    struct keys seen;
    int step = SQLITE_ROW, is_new;

    keys_init(&seen);
    *several = 0;
    for (size_t i = 0; i < sums->n; i++) {
        if (i && sums->sum[i].thread == sums->sum[i - 1].thread)
            continue;
        if ((step = find_thread(st, sums->sum[i].thread)) == SQLITE_DONE)
            continue;
        if (step != SQLITE_ROW)
            break;
        if (!*first)
            snprintf(first, sizeof first, "%s", text(st, GROUP));
        *several |= strncmp(first, text(st, GROUP), sizeof first - 1) != 0;
        int64_t process = sqlite3_column_int64(st, PROCESS);
        if (!keys_put(&seen, &process, sizeof process, &is_new)) {
            step = SQLITE_NOMEM;
            break;
        }
    }
    *processes = seen.n;
    keys_free(&seen);
    return step == SQLITE_ROW || step == SQLITE_DONE ? SQLITE_OK : step;
}

static int add_sums(struct fold_stacks *s, struct fold *fold, const struct sums *sums,
                    sqlite3_stmt *st) {
    uint32_t unread, leaf, process = FLAME_ROOT, node = FLAME_ROOT;
    int several, rc, step = SQLITE_DONE;
    int64_t last = -1;

    if ((rc = count_groups(sums, st, &fold->processes, &several)) != SQLITE_OK)
        return rc;
    unread = flame_label(s->f, "(stack could not be read)", "", FLAME_GROUP);
    for (size_t i = 0; rc == SQLITE_OK && i < sums->n; i++) {
        const struct sum *sum = &sums->sum[i];
        if (!i || sum->thread != sums->sum[i - 1].thread) {
            step = find_thread(st, sum->thread);
            if (step == SQLITE_ROW) {
                if (last == -1)
                    take_facts(fold, st);
                if (sqlite3_column_int64(st, PROCESS) != last && fold->split && fold->processes > 1)
                    process = process_node(s, st);
                last = sqlite3_column_int64(st, PROCESS);
                node = process;
                if (several)
                    node = flame_child(s->f, process,
                                       flame_label(s->f, text(st, GROUP), "", FLAME_GROUP));
            }
        }
        if (step == SQLITE_DONE)
            continue;
        if (step != SQLITE_ROW)
            return step;
        fold->weight += sum->weight;
        if (sum->stack)
            rc = fold_stack(s, node, sum->stack, sum->weight, &leaf);
        else
            leaf = flame_child(s->f, node, unread);
        if (rc == SQLITE_OK)
            flame_add(s->f, leaf, sum->weight);
    }
    return rc;
}

int fold_samples(struct flame *f, sqlite3 *db, struct fold *fold) {
    struct fold_stacks *stacks = NULL;
    sqlite3_stmt *thread = NULL;
    struct sums sums;
    int rc;

    fold->weight = 0;
    if ((rc = sums_read(&sums, db, fold)) != SQLITE_OK ||
        (rc = query_number(db, "SELECT (max(end_ts) - min(start_ts)) / 1e9 FROM trace_file",
                           &fold->seconds)) != SQLITE_OK ||
        (rc = fold_open(&stacks, f, db, fold)) != SQLITE_OK ||
        (rc = sqlite3_prepare_v2(db, thread_sql, -1, &thread, NULL)) != SQLITE_OK)
        goto out;
    fold->tick = sums.tick;
    if (fold->thread)
        sqlite3_bind_text(thread, 2, fold->thread, -1, SQLITE_STATIC);
    rc = add_sums(stacks, fold, &sums, thread);
out:
    sqlite3_finalize(thread);
    fold_close(stacks);
    sums_free(&sums);
    return rc;
}
