/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal.h - every byte that a method writes into the target, with what was there before, so that it can be undone.
 *
 *     struct journal j;
 *     journal_begin(&j, pid);
 *     rc = journal_write(&j, addr, &value, sizeof value);
 *     n = journal_undo(&j);          // newest first; what the target has changed since is left alone
 *     journal_end(&j);
 *
 * The process stands still meanwhile (stop.h), for writing and for undoing. Writes go through /proc/PID/mem. Functions
 * return 0 or -errno.
 */
#ifndef PROBING_INSPECT_JOURNAL_H
#define PROBING_INSPECT_JOURNAL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define JOURNAL_MAX   8
#define JOURNAL_BYTES 1024

struct journal {
    pid_t pid;
    int mem;
    unsigned n;
    struct journal_entry {
        uint64_t addr;
        size_t n;
        unsigned char before[JOURNAL_BYTES], after[JOURNAL_BYTES];
    } v[JOURNAL_MAX];
};

int journal_begin(struct journal *j, pid_t pid);
/* At most JOURNAL_BYTES; -ENOSPC when the journal is full: then nothing was written. */
int journal_write(struct journal *j, uint64_t addr, const void *buf, size_t n);
/* Returns how many writes could not be undone because something else has been written there meanwhile. */
int journal_undo(struct journal *j);
void journal_end(struct journal *j);

#endif
