/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc.h - what /proc says of another process: its mappings, threads, state, credentials, memory.
 *
 *     struct proc_maps maps;
 *     proc_maps_read(pid, &maps);
 *     const struct proc_map *m = proc_maps_library(&maps, "libc.so.6");
 *     proc_maps_free(&maps);
 *
 * Nothing here stops the process. Functions return 0 or -errno. Clocks, waits and the system's usual headers: writer/sys.h.
 */
#ifndef PROBING_INSPECT_PROC_H
#define PROBING_INSPECT_PROC_H

#include <sys/types.h>

#include "agent/pywalk/mem.h"
#include "writer/sys.h"

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
/* The id that the thread (0: the process) has in its own pid namespace; `tid` or `pid` where that is not known. */
pid_t proc_own_id(pid_t pid, pid_t tid);
/* Whether both see the same of what this kind of namespace has ("pid", "mnt"); yes where that is not known. */
int proc_same_namespace(pid_t pid, const char *kind);
/* The thread's name and state letter ('R', 'S', 'D', 'T', 't', 'Z', 'X'). */
int proc_task(pid_t pid, pid_t tid, char *name, size_t n, char *state);
/* Whether it has ended: nobody has asked for it yet (a zombie), or it is just going. */
static inline int proc_is_over(char state) {
    return state == 'Z' || state == 'X';
}
/* Makes place for one more behind the n that there are in *array, a pointer to elements of that size; the capacity is the next power of two. 0 or -ENOMEM. */
int proc_grow(void *array, size_t n, size_t size);
/* Thread ids, ascending; *out is malloc()ed. Returns how many, or -errno. */
ssize_t proc_tids(pid_t pid, pid_t **out);
/* The file of that name in /proc/PID/task/TID or, with tid 0, in /proc/PID: its first n - 1 bytes, ended by NUL. How many, or -errno. */
ssize_t proc_file(pid_t pid, pid_t tid, const char *name, char *buf, size_t n);
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
int proc_write(pid_t pid, uint64_t addr, const void *buf, size_t n);

/* Memory by the page, for one read of a process and no longer: pywalk_pages_read() reads it, free() ends it. NULL: no memory. */
struct pywalk_pages *cache_open(struct pywalk_mem mem);

#endif
