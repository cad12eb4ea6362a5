/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.h - traces made ready to be shipped: complete, joined, small.
 *
 *     struct pack p = {.level = 19, .say = say};
 *     rc = pack_find(&p, &inputs);                      // which processes the inputs are of: p.process[i], p.n
 *     rc = pack_process(&p, &p.process[i], fd);         // writes one trace
 *     pack_free(&p);
 *
 * The files that a process's trace has gone on in (rotation) become one trace again: blocks in order, dictionaries once, without
 * the ends between. Small blocks become larger ones (pack_merge.h). All else is taken over row by row as it is; blocks that are missing or cannot be read leave a gap in the
 * numbers, so that the packed trace tells of them. What the traces do not name yet of native code is looked up here (complete.h).
 */
#ifndef PROBING_TOOLS_PACK_H
#define PROBING_TOOLS_PACK_H

#include "../converter/inputs.h"
#include "../converter/reader.h"
#include "complete.h"

/* One trace of the inputs. */
struct pack_part {
    const char *path;
    unsigned number; /* of several that are joined in the file: 1, 2, ... */
    uint64_t first;  /* when it began: ts of its first process record */
    uint64_t *at;    /* of all its process records: one that was joined has those of its parts */
    size_t said;
    uint64_t bytes, damaged_records, damaged_blocks, tail_bytes;
};

/* All that is there of one process's recording. */
struct pack_process {
    char key[320]; /* host, boot, pid, start; "": not known, a trace alone */
    char host[80];
    uint32_t pid;
    int32_t rank;
    struct pack_part *part; /* in the order of time */
    size_t n, cap;
};

struct pack {
    int level, debuginfod;
    int symbols; /* 0: only names that the traces have */
    /* One line about an input. */
    void (*say)(void *ctx, const char *path, const char *line);
    /* Called now and then; not 0: stop (-EINTR). May be NULL. */
    int (*tick)(void *ctx);
    void *ctx;
    struct pack_process *process;
    size_t n, cap;
    unsigned damaged, failed,
        copies; /* parts with a loss; inputs that gave nothing; parts that were there twice */
    uint64_t bytes_in, bytes_out;
    size_t written; /* traces */
    struct complete complete;
    int ready; /* `complete` is */
};

/* Looks at all inputs. 0 or -ENOMEM; what cannot be used is said and counted. */
int pack_find(struct pack *p, const struct inputs *in);
/* Writes the process's trace to fd, from where that stands. 0, -EINTR or -errno. */
int pack_process(struct pack *p, struct pack_process *proc, int fd);
void pack_free(struct pack *p);

#endif
