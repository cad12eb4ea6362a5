/* SPDX-License-Identifier: Apache-2.0 */
#include "convert.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../traces/run.h"
#include "ahead.h"
#include "align.h"
#include "append.h"
#include "clock_rows.h"
#include "kept_numbers.h"
#include "load.h"
#include "place_rows.h"
#include "source.h"
#include "store.h"
#include "tables.h"
#include "trace_row.h"

/* instructions of SQLite's virtual machine between two calls of tick_again(): about a millisecond */
#define STEPS 100000

struct job {
    const struct convert_options *opt;
    const struct inputs *in;
    struct convert_result *res;
    struct store store;
    struct symbols *symbols;
    struct callsites sites;
    struct stackset stacks;
    struct queue rows; /* rows of sites and stacks */
    struct load_now now;
    struct append append; /* what the database already has */
    struct kept_numbers numbers;
    struct align *align;
    struct prepare_plan plan;
    int changed;        /* the database was changed, though not by rows of a trace */
    int again;          /* a trace that the database had was read anew */
    double done, share; /* as fractions of all input: the finished files, and the current file */
    double part;        /* fraction of the current file, as last reported */
    int stop;           /* tick() asked to stop */
    int stale;          /* the database cannot be added to */
};

static __attribute__((format(printf, 3, 4))) void say(const struct job *j, const char *file,
                                                      const char *fmt, ...) {
    char line[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (j->opt->say)
        j->opt->say(j->opt->ctx, file, line);
}

static int tick(void *ctx, double part) {
    struct job *j = ctx;

    j->part = part;
    if (j->opt->tick && j->opt->tick(j->opt->ctx, j->done + part * j->share))
        j->stop = 1;
    return j->stop;
}

/* Also called in the middle of a statement, because records other than samples, indexes and sums take long too. */
static int tick_again(void *ctx) {
    struct job *j = ctx;

    return tick(j, j->part);
}

/* Stores the large parts of what the next question need not find out again, when they have grown by a quarter. */
static int keep_more(struct job *j, const struct prepared *p, uint32_t trace, int has_stacks) {
    size_t n;
    void *kept = reader_store(p->load.shared.reader, &n);
    int rc = n && !kept ? SQLITE_NOMEM : SQLITE_OK;

    if (kept)
        rc = append_keep_more(j->store.db, trace, APPEND_BLOCKS, kept, n);
    free(kept);
    if (rc == SQLITE_OK && has_stacks && !resolver_has_base(p->load.resolver)) {
        if (!(kept = resolver_save(p->load.resolver, 1, &n)))
            return SQLITE_NOMEM;
        rc = append_keep_more(j->store.db, trace, APPEND_ADDRESSES, kept, n);
        resolver_saved(p->load.resolver);
        free(kept);
    }
    if (rc == SQLITE_OK && has_stacks && (kept = epochs_keep(p->load.shared.epochs, &n))) {
        rc = append_keep_more(j->store.db, trace, APPEND_DICTIONARY, kept, n);
        free(kept);
    }
    return rc;
}

/* Stores how far the trace was read, if it can be continued: it may grow, nothing of it is damaged, and nothing refers to what is missing. */
static int keep_reading(struct job *j, const struct prepared *p, const struct trace_row *row) {
    const struct reader_loss *l = &row->loss;
    struct resume at;
    size_t n;
    int rc = SQLITE_OK;

    if (p->meta.end_reason || !p->boot || !p->meta.clock.n || j->plan.partial || row->unresolved ||
        l->damaged_blocks || l->damaged_bytes || l->missing_blocks || l->repeated_blocks ||
        l->newer_blocks || l->unknown_blocks || l->excess_blocks || l->wrong_hints ||
        callsites_has(&j->sites, CALLSITE_PYTHON, "[unknown]", NULL, 0))
        return SQLITE_OK;
    int has_stacks = epochs_have_stacks(p->load.shared.epochs);
    if (j->opt->cache)
        rc = keep_more(j, p, row->trace, has_stacks);
    if (rc != SQLITE_OK)
        return rc;
    void *kept = has_stacks ? resolver_save(p->load.resolver, !j->opt->cache, &n)
                            : epochs_save(p->load.shared.epochs, &n);
    if (!kept)
        return SQLITE_NOMEM;
    resume_of(&at, row->reader, row->meta, &p->modules, p->resumed ? &p->was->at : NULL);
    rc = append_keep(j->store.db, row->trace, &at, kept, n);
    free(kept);
    return rc;
}

static void say_copy(struct job *j, const struct prepared *p) {
    char which[40] = "";

    if (p->part > 1)
        snprintf(which, sizeof which, "trace %u in it: ", p->part);
    say(j, p->in->path, "%sthe same recording as %s: counted once", which,
        j->in->file[p->copy - 1].path);
}

/* Inserts the rows of a trace, whose samples are all read. Returns an SQLite result code. */
static int convert_trace(struct job *j, struct prepared *p) {
    struct load *l = &p->load;
    char line[512];

    if (p->state == APPEND_SAME) {
        if (p->copy)
            say_copy(j, p);
        j->res->there++;
        return SQLITE_OK;
    }
    int rc = SQLITE_OK;
    /* the sums over all traces contain what this trace had before */
    if ((j->stale = p->state == APPEND_GROWN && !p->resumed && j->rows.only_all) != 0)
        return SQLITE_ABORT;
    if (p->state == APPEND_GROWN)
        rc = (p->resumed ? append_reopen : append_forget)(j->store.db, p->was->id);
    if (rc == SQLITE_OK && p->state == APPEND_GROWN && !p->resumed && j->rows.adds_all)
        rc = tables_forget_functions(j->store.db);
    if (p->state == APPEND_GROWN && !p->resumed) {
        j->rows.adds_all = 0;
        j->again = 1;
    }
    l->db = j->store.db;
    l->tick = tick;
    l->tick_ctx = j;
    l->alone = j->opt->threads == 1;
    if (rc == SQLITE_OK)
        rc = load_rows(&j->now, l);
    struct trace_row row = {.db = j->store.db,
                            .trace = l->trace,
                            .in = p->in,
                            .part = p->part,
                            .partial = j->plan.partial,
                            .meta = &p->meta,
                            .reader = l->shared.reader,
                            .boot = p->boot,
                            .recording = p->recording,
                            .unresolved = l->unresolved};
    if (rc == SQLITE_OK && reader_loss(row.reader, &row.loss) != 0)
        rc = SQLITE_NOMEM;
    reader_totals(row.reader, &row.totals);
    if (rc == SQLITE_OK)
        rc = trace_row_loss(&row);
    if (rc != SQLITE_OK)
        return rc;
    int damaged = trace_row_damage(&row, line, sizeof line);
    if (*line)
        say(j, p->in->path, "%s", line);
    j->res->traces++;
    j->res->damaged += damaged != 0;
    j->res->open += !p->meta.end_reason;
    for (size_t i = l->shared.first; i < reader_blocks(row.reader); i++)
        if (reader_block(row.reader, i)->state == READER_GOOD)
            j->res->records += reader_block(row.reader, i)->count;
    j->res->samples += l->samples;
    j->res->lost += row.lost;
    j->res->bytes_in += reader_size(row.reader);
    rc = trace_row_write(&row, !damaged && p->meta.end_reason);
    return rc == SQLITE_OK && !(j->opt->need & VTAB_PLACES) ? keep_reading(j, p, &row) : rc;
}

/* Returns 1 for a file without a block yet whose process is just about to write it, or was killed before: nothing is lost that its parent
 * has not counted. A file that the user named is reported all the same. */
static int none_yet(const struct input *in, int err) {
    return (in->found || in->recording) &&
           (err == -ENODATA || err == -ENOENT || (err == -ENOMSG && in->recording));
}

/* Returns the number of threads: one for each processor that we may use; one of them inserts, the others prepare. */
static unsigned threads_of(const struct convert_options *opt) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 2;

    return opt->threads ? opt->threads : n > 1 ? (unsigned)n : 2;
}

static int convert_files(struct job *j, const struct inputs *in, const size_t *first) {
    const struct ahead_options opt = {.in = in,
                                      .first = first,
                                      .plan = &j->plan,
                                      .last_trace = j->append.last,
                                      .threads = threads_of(j->opt)};
    struct ahead *a;
    const struct input *file;
    int err = ahead_start(&a, &opt), open_err = 0;

    if (err)
        return store_failed(&j->store, SQLITE_NOMEM, "reading");
    while (!err && (file = ahead_file(a, &open_err))) {
        struct prepared *p;
        int read_err = 0;
        j->done = (double)ahead_at(a) / (double)in->n;
        j->part = 0;
        if (open_err) {
            int just_begun = none_yet(file, open_err);
            say(j, file->path, "%s%s", reader_strerror(open_err),
                just_begun ? ": its process had only begun to record" : "");
            j->res->failed += !just_begun;
            continue;
        }
        while (!err && (p = ahead_trace(a, &read_err)))
            err = store_failed(&j->store, convert_trace(j, p), "writing the rows");
        if (!err && read_err)
            err = store_failed(&j->store, SQLITE_NOMEM, "reading");
    }
    ahead_stop(a);
    return j->stale ? -ESTALE : err;
}

static int convert_all(struct job *j, const struct inputs *in) {
    j->in = in;
    size_t *first = calloc(in->n + 1, sizeof *first), nstored;
    struct reader_stored *stored = append_blocks(&j->append, &nstored);
    struct prepare_plan *p = &j->plan;
    int err = first ? 0 : -ENOMEM;

    if (!err) {
        j->done = j->share = 0;
        j->align =
            align_inputs(in, stored, nstored, first, &j->opt->since, &j->opt->until, tick, j);
        if (j->align && j->opt->clocks &&
            (clock_rows_take(j->store.db, j->opt->clocks, j->align) != SQLITE_OK ||
             place_rows_take(j->store.db, j->opt->clocks, j->align, first[in->n]) != SQLITE_OK)) {
            snprintf(j->store.error, sizeof j->store.error,
                     "--clocks %.4000s: it holds no alignment of clocks", j->opt->clocks);
            err = -EINVAL;
        }
        if (j->align && !err && (j->store.adding || j->opt->clocks))
            err = store_failed(&j->store, append_clocks(j->store.db, j->align), "reading it");
        if (j->align && !err && align_solve(j->align) != 0) {
            align_free(j->align);
            j->align = NULL;
        }
        j->share = 1.0 / (double)in->n;
    }
    if (!err && j->align && j->opt->cache &&
        append_has_others(&j->append, j->align, first[in->n])) {
        snprintf(j->store.error, sizeof j->store.error, "%s holds other traces", j->opt->out);
        err = -ESTALE;
    }
    if (!err && j->align) {
        int64_t begin, end;
        align_span(j->align, &begin, &end);
        p->align = j->align;
        p->since = j->opt->since.from ? when_utc(&j->opt->since, begin, end) : INT64_MIN;
        p->until = j->opt->until.from ? when_utc(&j->opt->until, begin, end) : INT64_MAX;
        if (p->since > p->until || (end && (p->since > end || p->until < begin)))
            say(j, j->opt->out ? j->opt->out : "traces",
                "nothing lies in the time that was asked for: the traces go from %.3f to %.3f (seconds UTC)",
                (double)begin / 1e9, (double)end / 1e9);
    }
    if (!j->align || (err && !*j->store.error))
        err = store_failed(&j->store, SQLITE_NOMEM, "reading");

    if (!err)
        err = convert_files(j, in, first);
    if (!err && tick_again(j)) /* it may have been stopped while a file was opened */
        err = store_failed(&j->store, SQLITE_INTERRUPT, "reading");
    if (!err) {
        char line[512];
        j->changed = align_moves(j->align) != 0;
        err = store_failed(&j->store, clock_rows_write(j->store.db, j->align, line, sizeof line),
                           "writing the rows");
        if (!err && *line)
            say(j, j->opt->out ? j->opt->out : "traces", "%s", line);
    }
    align_free(j->align);
    j->align = NULL;
    free(first);
    free(stored);
    if (!err && j->res->traces == 0 && j->res->there == 0) {
        snprintf(j->store.error, sizeof j->store.error, "%s%sno input could be used",
                 j->opt->out ? j->opt->out : "", j->opt->out ? ": not written: " : "");
        err = -ENODATA;
    }
    return err;
}

/* Loads what the database already has, so that its numbers are continued and names are not stored twice. */
static int start_adding(struct job *j) {
    int rc = append_load(&j->append, j->store.db, j->opt->cache);

    if (rc == SQLITE_OK && j->opt->cache)
        rc = kept_numbers_load(&j->numbers, j->store.db, &j->sites, &j->stacks);
    if (rc == SQLITE_OK && !j->numbers.rows)
        rc = callsites_read(&j->sites, j->store.db);
    return rc == SQLITE_OK && !j->numbers.rows ? stackset_read(&j->stacks, j->store.db) : rc;
}

int convert(const struct inputs *in, const struct convert_options *opt,
            struct convert_result *res) {
    struct job j = {.opt = opt, .res = res};
    struct stat st;

    memset(res, 0, sizeof *res);
    int err = store_open(&j.store, opt->out,
                         (opt->force ? STORE_FORCE : 0) | (opt->append ? STORE_ADD : 0) |
                             (opt->cache ? STORE_CACHE : 0) |
                             (opt->need && !(opt->need & VTAB_STACKS) ? STORE_NO_STACKS : 0) |
                             (opt->need & VTAB_NOT_STORED ? STORE_NOT_STORED : 0),
                         opt->asked, in);
    if (err)
        goto out;
    queue_init(&j.rows);
    err = callsites_init_rows(&j.sites, &j.rows);
    if (!err)
        err = stackset_init(&j.stacks, &j.sites, &j.rows);
    if (err) {
        queue_free(&j.rows);
        store_abort(&j.store);
        snprintf(j.store.error, sizeof j.store.error, "no random numbers");
        goto out;
    }
    j.sites.no_frames = opt->need & VTAB_FUNCTIONS && !(opt->need & VTAB_STACKS);
    sqlite3_progress_handler(j.store.db, STEPS, tick_again, &j);
    j.share = in->n ? 1.0 / (double)in->n : 1;
    j.symbols = symbols_new(opt->debuginfod);
    if (j.symbols && opt->names_in)
        symbols_keep_in(j.symbols, opt->names_in);
    j.plan = (struct prepare_plan){.sites = &j.sites,
                                   .stacks = &j.stacks,
                                   .symbols = j.symbols,
                                   .append = &j.append,
                                   .types = opt->types,
                                   .need = opt->need,
                                   .partial = opt->since.from || opt->until.from || opt->types};
    int rc = j.symbols ? load_register(j.store.db, &j.now) : SQLITE_NOMEM;
    if (rc == SQLITE_OK && j.store.adding)
        rc = start_adding(&j);
    j.rows.only_all = opt->cache && j.sites.no_frames && !(opt->need & VTAB_SUMS);
    j.rows.adds_all = opt->cache && tables_have_functions(j.store.db) == 1;
    err = store_failed(&j.store, rc, "starting");
    if (!err)
        err = convert_all(&j, in);
    load_end(&j.now);
    if (!err)
        err = store_failed(&j.store, queue_drain(&j.rows, j.store.db, 0), "writing the stacks");
    queue_end(&j.rows);
    if (!err && j.again && !opt->cache && !opt->need) /* a cache keeps the numbers of all stacks */
        err = store_failed(&j.store, tables_forget_stacks(j.store.db), "writing the stacks");
    if (!err && opt->cache)
        err = store_failed(&j.store, kept_numbers_save(&j.numbers, j.store.db, &j.sites, &j.stacks),
                           "writing the stacks");
    if (!err &&
        tick_again(&j)) /* a short conversion is not interrupted meanwhile, or ignores the result */
        err = store_failed(&j.store, SQLITE_INTERRUPT, "reading");
    if (!err && (!opt->out || opt->cache))
        load_unregister(j.store.db);
    if (err)
        store_abort(&j.store);
    else if (j.store.adding && !res->traces && !j.changed && !j.store.added)
        store_leave(&j.store, &res->db);
    else
        err = store_finish(&j.store, &res->db);
    if (res->db) /* the handle outlives j */
        sqlite3_progress_handler(res->db, 0, NULL, NULL);
    res->runs = j.store.runs;
    if (!err && *j.store.ranks && !j.plan.partial && !j.plan.need)
        say(&j, opt->out ? opt->out : "traces", "%s", j.store.ranks);
    if (!err && opt->out && stat(opt->out, &st) == 0)
        res->bytes_out = (uint64_t)st.st_size;
    stackset_free(&j.stacks);
    callsites_free(&j.sites);
    queue_free(&j.rows);
    append_free(&j.append);
    symbols_free(j.symbols);
out:
    if (err)
        snprintf(res->error, sizeof res->error, "%s", j.store.error);
    return err;
}
