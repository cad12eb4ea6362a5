/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc.h - what /proc says of another process: its mappings, threads, state, credentials, memory.
 *
 *     struct proc_maps maps;
 *     proc_maps_read(pid, &maps);
 *     const struct proc_map *m = proc_maps_library(&maps, "libc.so.6");
 *     proc_maps_free(&maps);
 *
 * Nothing here stops or changes the process. Functions return 0 or -errno.
 */
#ifndef PROBING_INSPECT_PROC_H
#define PROBING_INSPECT_PROC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_map {
    uint64_t start, end, offset;
    uint64_t inode;
    char perms[8]; /* "r-xp" */
    char *path;    /* "" for anonymous memory; " (deleted)" is cut off */
    int deleted;
};
struct proc_maps {
    struct proc_map *v; /* ascending */
    size_t n;
};
int proc_maps_read(pid_t pid, struct proc_maps *out);
/* The same from lines of that form. */
int proc_maps_parse(const char *text, struct proc_maps *out);
/* Appends a copy of *map: in ascending order. */
int proc_maps_add(struct proc_maps *maps, const struct proc_map *map);
void proc_maps_free(struct proc_maps *maps);
/* The mapping that holds addr, or NULL. */
const struct proc_map *proc_maps_at(const struct proc_maps *maps, uint64_t addr);
/* The first mapping (offset 0) of a file whose base name is `name`, or, when `name` ends in '*',
 * begins with it. NULL when there is none. */
const struct proc_map *proc_maps_library(const struct proc_maps *maps, const char *name);

/* One field of /proc/PID/status or, with tid, of that thread: "Uid", "Seccomp", "SigIgn" ... The text
 * after the colon and the blanks. -ENOENT: there is no such field. */
int proc_status(pid_t pid, pid_t tid, const char *field, char *buf, size_t n);
/* The thread's name and state letter ('R', 'S', 'D', 'T', 't', 'Z', 'X'). */
int proc_task(pid_t pid, pid_t tid, char *name, size_t n, char *state);
/* Thread ids, ascending; *out is malloc()ed. Returns how many, or -errno. */
ssize_t proc_tids(pid_t pid, pid_t **out);
/* What /proc/PID/NAME points to ("cwd", "exe", "ns/mnt"). */
int proc_link(pid_t pid, const char *name, char *buf, size_t n);
/* A variable of the process's initial environment. -ENOENT. */
int proc_environ(pid_t pid, const char *name, char *buf, size_t n);

/*
 * Which program it runs: [0] is the process (when it began), [1] changes at every exec: a hash of what the kernel told the
 * program at its start (auxv), 16 random bytes of it included. 0 or -errno.
 */
int proc_image(pid_t pid, uint64_t id[2]);

/* Memory of the process (process_vm_readv): all n bytes or -EFAULT. */
int proc_read(pid_t pid, uint64_t addr, void *buf, size_t n);
/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t proc_now(void);
void proc_sleep_us(unsigned us);

#endif
