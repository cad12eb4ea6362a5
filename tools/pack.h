/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.h - makes traces ready to be shipped: complete, joined and small.
 *
 *     struct pack p = {.level = 19, .say = say};
 *     rc = pack_find(&p, &inputs);                      // finds the processes that the inputs belong to: p.process[i], p.n
 *     rc = pack_process(&p, &p.process[i], fd);         // writes one trace
 *     pack_free(&p);
 *
 * The files that a process's trace was continued in (rotation) become one trace again: blocks in order, each dictionary once, without the
 * ends in between. Small blocks become larger ones (pack_merge.h). Everything else is copied row by row. Blocks that are missing or cannot
 * be read leave a gap in the sequence numbers, so that the packed trace shows the loss. Native code that the traces have no names for yet
 * is looked up here (complete.h).
 */
#ifndef PROBING_TOOLS_PACK_H
#define PROBING_TOOLS_PACK_H

#include "../converter/inputs.h"
#include "../converter/reader.h"
#include "complete.h"

/* One trace of the inputs. */
struct pack_part {
    const char *path;
    unsigned number; /* which of several traces joined in the file: 1, 2, ... */
    uint64_t first;  /* when it began: ts of its first process record */
    uint64_t *at;    /* ts of all its process records; a joined trace has those of its parts */
    size_t said;
    uint64_t end;  /* the offset in the file at which it ends */
    uint64_t rows; /* that can be read in blocks of data, except the names of native code */
    int has_end;   /* it says that its recording ended */
    uint64_t bytes, damaged_records, damaged_blocks, tail_bytes;
};

/* All parts of one process's recording. */
struct pack_process {
    char key[320]; /* host, boot, pid, start; "": not known, for a trace by itself */
    char host[80];
    uint32_t pid;
    int32_t rank;
    struct pack_part *part; /* in the order of time */
    size_t n, cap;
};

struct pack {
    int level, debuginfod;
    int symbols; /* 0: use only the names that the traces have */
    /* Called with one line about an input. */
    void (*say)(void *ctx, const char *path, const char *line);
    /* Called now and then; a nonzero result stops the work (-EINTR). May be NULL. */
    int (*tick)(void *ctx);
    void *ctx;
    struct pack_process *process;
    size_t n, cap;
    unsigned damaged, failed,
        copies; /* number of parts with a loss; of inputs that gave nothing; of parts that occurred twice */
    uint64_t bytes_in, bytes_out;
    size_t written,
        there; /* number of traces; of those that were in the output directory already */
    struct complete complete;
    int ready; /* 1: `complete` is initialized */
};

/* Inspects all inputs. Returns 0 or -ENOMEM; prints and counts the inputs that cannot be used. */
int pack_find(struct pack *p, const struct inputs *in);
/* Writes the process's trace to fd, at its current position. Returns 0, -EINTR or -errno; -ESTALE: an input is no longer what pack_find() found (which
 * was printed and counted), so what was written is of no use. */
int pack_process(struct pack *p, struct pack_process *proc, int fd);
/* Returns 1 if the file is a packed trace that has all that the process's parts have; 0; or -ENOMEM. */
int pack_is_packed(const struct pack_process *proc, const char *path);
void pack_free(struct pack *p);

#endif
