/* SPDX-License-Identifier: Apache-2.0 */
#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int journal_begin(struct journal *j, pid_t pid) {
    char name[64];

    j->pid = pid;
    j->n = 0;
    snprintf(name, sizeof name, "/proc/%d/mem", pid);
    j->mem = open(name, O_RDWR | O_CLOEXEC);
    return j->mem < 0 ? -errno : 0;
}

static int whole(ssize_t r, size_t n) {
    return r == (ssize_t)n ? 0 : -EFAULT;
}

int journal_write(struct journal *j, uint64_t addr, const void *buf, size_t n) {
    struct journal_entry *e = &j->v[j->n];
    int rc;

    if (j->n == JOURNAL_MAX || n > sizeof e->before)
        return -ENOSPC;
    e->addr = addr;
    e->n = n;
    memcpy(e->after, buf, n);
    rc = whole(pread(j->mem, e->before, n, (off_t)addr), n);
    if (rc == 0) {
        j->n++; /* written in part it is to be undone, too */
        rc = whole(pwrite(j->mem, buf, n, (off_t)addr), n);
    }
    return rc;
}

int journal_undo(struct journal *j) {
    unsigned char now[JOURNAL_BYTES];
    int left = 0;

    while (j->n > 0) {
        struct journal_entry *e = &j->v[--j->n];
        if (whole(pread(j->mem, now, e->n, (off_t)e->addr), e->n) < 0 ||
            memcmp(now, e->after, e->n) ||
            whole(pwrite(j->mem, e->before, e->n, (off_t)e->addr), e->n) < 0)
            left++;
    }
    return left;
}

void journal_end(struct journal *j) {
    if (j->mem >= 0)
        close(j->mem);
    j->mem = -1;
}
