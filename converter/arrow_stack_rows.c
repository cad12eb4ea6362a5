/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_stack_rows.c - the table `stacks` of traces: a row for each distinct stack of the samples, with its frames as lists.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrow_rows.h"

enum {
    S_ID,
    S_DEPTH,
    S_LEAF,
    S_FUNCS,
    S_FILES,
    S_LINES,
    S_TYPES,
    S_MODULES,
    S_FIRSTLINES,
    S_FIRSTS,
    NCOLUMNS
};

static const struct arrow_field columns[NCOLUMNS] = {
    [S_ID] = {"stack_id", ARROW_INT, "by what is on the stack: the same wherever it is read"},
    [S_DEPTH] = {"depth", ARROW_INT, "number of frames"},
    [S_LEAF] = {"leaf", ARROW_INT, "index of the innermost Python frame in the lists; null: none"},
    [S_FUNCS] = {"funcs", ARROW_NAMES, "functions, the innermost first"},
    [S_FILES] = {"files", ARROW_NAMES, "their files, '' where not known"},
    [S_LINES] = {"lines", ARROW_INTS, "the lines in them, 0 where not known"},
    [S_TYPES] = {"types", ARROW_NAMES, "Python or Native"},
    [S_MODULES] = {"modules", ARROW_NAMES, "ELF files of native functions, '' of Python's"},
    [S_FIRSTLINES] = {"firstlines", ARROW_INTS,
                      "first lines of Python functions, 0 where not known"},
    [S_FIRSTS] = {"firsts", ARROW_INTS,
                  "1 at the innermost frame of each function, 0 where it recurs"},
};

struct stacks {
    struct arrow_source base; /* must be first */
    struct arrow_rows r;
    unsigned *which;
    uint32_t *functions,
        stamp; /* indexed by function: stamp of the stack that it was last seen on */
    size_t nfunctions;
    uint8_t *given; /* one bit for each callsite: its row has been written */
    size_t given_cap;
    int known; /* 1: the dictionaries of the columns are set */
};

/* Puts what a list needs of a frame; `seen`: its function was on this stack already. */
static int put_item(struct stacks *s, struct arrow_column *c, uint32_t frame, unsigned what,
                    int seen) {
    const struct arrow_frame *f = arrow_stacks_frame(&s->r.stacks, frame);
    struct callsites_function function;
    int32_t index = 0;
    int err = f ? 0 : -ENOMEM;

    if (err)
        return err;
    switch (what) {
    case S_FIRSTS:
        return arrow_item(c, !seen);
    case S_LINES:
        return arrow_item(c, f->line);
    case S_FIRSTLINES:
    case S_MODULES:
        function = callsites_function_of(&s->r.stacks.sites,
                                         callsites_frame_of(&s->r.stacks.sites, frame).function);
        if (what == S_FIRSTLINES)
            return arrow_item(c, (int64_t)function.firstline);
        err = arrow_names_put(c->names, function.module, strlen(function.module), &index);
        break;
    case S_TYPES:
        err = arrow_names_put(c->names, f->native ? "Native" : "Python", 6, &index);
        break;
    case S_FILES:
        index = f->file;
        if (index < 0)
            err = arrow_names_put(c->names, "", 0, &index);
        break;
    case S_FUNCS:
        index = f->func;
        if (index < 0)
            err = arrow_names_put(c->names, "", 0, &index);
        break;
    }
    return err ? err : arrow_item(c, index);
}

static int put_stack(struct stacks *s, struct arrow_column *c, uint32_t site, unsigned what) {
    uint32_t parent;
    int seen = 0, err = 0;

    for (s->stamp++; !err && site; site = parent) {
        uint32_t frame = callsites_site_of(&s->r.stacks.sites, site, &parent);
        if (what == S_FIRSTS) {
            uint32_t function = callsites_frame_of(&s->r.stacks.sites, frame).function;
            if (function >= s->nfunctions) {
                size_t n = (size_t)function * 2 + 256;
                uint32_t *p = realloc(s->functions, n * sizeof *p);
                if (!p)
                    return -ENOMEM;
                memset(p + s->nfunctions, 0, (n - s->nfunctions) * sizeof *p);
                s->functions = p;
                s->nfunctions = n;
            }
            seen = s->functions[function] == s->stamp;
            s->functions[function] = s->stamp;
        }
        err = put_item(s, c, frame, what, seen);
    }
    return err ? err : arrow_put_list(c);
}

/* Puts the stacks that have not been written yet. */
static int put_stacks(struct stacks *s, struct arrow_batch *b) {
    for (size_t i = 0; i < s->r.n; i++) {
        uint32_t site = s->r.site[i], parent;
        if (!site)
            continue;
        if (site / 8 >= s->given_cap) {
            size_t cap = site / 4 + 1024;
            uint8_t *p = realloc(s->given, cap);
            if (!p)
                return arrow_fail(s->base.notes, -ENOMEM, "no memory");
            memset(p + s->given_cap, 0, cap - s->given_cap);
            s->given = p;
            s->given_cap = cap;
        }
        if (s->given[site / 8] >> site % 8 & 1)
            continue;
        s->given[site / 8] |= (uint8_t)(1u << site % 8);
        int64_t depth = 0, leaf = -1;
        for (uint32_t at = site; at; at = parent, depth++) {
            const struct arrow_frame *f = arrow_stacks_frame(
                &s->r.stacks, callsites_site_of(&s->r.stacks.sites, at, &parent));
            if (f && !f->native && leaf < 0)
                leaf = depth;
        }
        for (size_t k = 0; k < b->ncols; k++) {
            struct arrow_column *c = &b->col[k];
            int err = s->which[k] == S_ID      ? arrow_put(c, arrow_stacks_id(&s->r.stacks, site))
                      : s->which[k] == S_DEPTH ? arrow_put(c, depth)
                      : s->which[k] == S_LEAF  ? (leaf < 0 ? arrow_put_null(c) : arrow_put(c, leaf))
                                               : put_stack(s, c, site, s->which[k]);
            if (err)
                return arrow_fail(s->base.notes, err, "%s", strerror(-err));
        }
        b->n++;
    }
    return 0;
}

static int next(struct arrow_source *base, struct arrow_batch *b) {
    struct stacks *s = (struct stacks *)base;
    int rc;

    for (size_t i = 0; !s->known && i < b->ncols; i++) {
        if (s->which[i] == S_FUNCS)
            s->r.stacks.func = b->col[i].names;
        else if (s->which[i] == S_FILES)
            s->r.stacks.file = b->col[i].names;
    }
    s->known = 1;
    rc = arrow_rows_next(&s->r);
    return rc <= 0 ? rc : (rc = put_stacks(s, b)) ? rc : 1;
}

static void stacks_free(struct arrow_source *base) {
    struct stacks *s = (struct stacks *)base;

    arrow_rows_free(&s->r);
    free(s->given);
    free(s->functions);
    free(s->which);
    free(s->base.fields);
    free(s);
}

struct arrow_source *arrow_stack_rows(const struct probing_request *rq, struct arrow_notes *notes) {
    struct stacks *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->base = (struct arrow_source){.rq = rq, .notes = notes, .next = next, .free = stacks_free};
    s->r.sites = 1;
    arrow_rows_init(&s->r, rq, notes);
    if (arrow_choose(&s->base, columns, NCOLUMNS, NCOLUMNS, &s->which) != 0) {
        stacks_free(&s->base);
        return NULL;
    }
    return &s->base;
}
