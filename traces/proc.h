/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc.h - what /proc tells about a process, our own or another: its mappings, threads, state, credentials and memory; also reads
 * the text of a small file. Shared by the agent, the writer, the tools and libprobing-inspect.
 *
 *     struct proc_maps maps;
 *     proc_maps_read(pid, &maps);
 *     const struct proc_map *m = proc_maps_library(&maps, "libc.so.6");
 *     proc_maps_free(&maps);
 *
 * Nothing here stops the process. Functions return 0 or -errno. The inline ones are async-signal-safe, and leave errno undefined.
 */
#ifndef PROBING_TRACES_PROC_H
#define PROBING_TRACES_PROC_H

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "array.h"
#include "auto.h"

/* ---- small files, of /proc and /sys ---- */

/* Reads the file at fd from its start, as many bytes as fit, and adds a NUL. Returns the number of bytes. */
static inline size_t proc_read_fd(int fd, char *buf, size_t n) {
    size_t have = 0;
    for (ssize_t r = 1; fd >= 0 && r > 0 && have + 1 < n; have += r > 0 ? (size_t)r : 0)
        r = pread(fd, buf + have, n - 1 - have, (off_t)have);
    buf[have] = 0;
    return have;
}

/* Opens the file and reads it likewise; returns 0 also when it cannot be opened. */
static inline size_t proc_read_file(const char *path, char *buf, size_t n) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t have = proc_read_fd(fd, buf, n);
    if (fd >= 0)
        close(fd);
    return have;
}

/* Returns where field n (as in proc(5), from 3 on) begins in the text of a /proc/PID/stat, or NULL when there is no such field. */
static inline char *proc_stat_field(char *stat, int n) {
    char *p = strrchr(stat, ')'); /* the name in field 2 may hold anything */
    for (int field = 2; p && field < n; field++)
        p = strchr(p + 1, ' ');
    return p ? p + 1 : NULL;
}

/* Returns the number in field n of the /proc/PID/stat at this path; 0 if it cannot be read. */
static inline uint64_t proc_stat_number(const char *path, int n) {
    char text[1024], *field;
    proc_read_file(path, text, sizeof text);
    return (field = proc_stat_field(text, n)) ? strtoull(field, NULL, 10) : 0;
}

/* Finds the line of the text that begins with `name` and at least one of the characters `between`. Returns what follows these; NULL: there is no such line. */
static inline char *proc_value(const char *text, const char *name, const char *between) {
    size_t n = strlen(name);
    for (const char *p = text, *next; p; p = next ? next + 1 : NULL) {
        next = strchr(p, '\n');
        if (strncmp(p, name, n) == 0 && p[n] && strchr(between, p[n]))
            return (char *)p + n + strspn(p + n, between);
    }
    return NULL;
}

/* Returns whether the calling thread is its process's only one; 0 also if /proc does not show it. */
static inline int proc_is_alone(void) {
    struct stat st;
    return !stat("/proc/self/task", &st) && st.st_nlink == 2 + 1; /* 2 as of any folder */
}

/* ---- mappings ---- */

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
int proc_maps_read(pid_t pid, struct proc_maps *out); /* release by proc_maps_free() */
/* Calls fn with each line of our own maps, which fn may modify, until fn returns a value other than 0; returns that value, or -errno. Allocates
 * no memory. */
int proc_maps_each(int (*fn)(void *ctx, char *line), void *ctx);
/* Parses one line of /proc/PID/maps. The line is modified, and m->path points into it. Returns 0 or -EBADMSG. Allocates no memory. */
int proc_map_line(char *line, struct proc_map *m);
/* Parses all lines of a text in that form. */
int proc_maps_parse(const char *text, struct proc_maps *out);
/* Appends a copy of *map. Call it in ascending order of addresses. */
int proc_maps_add(struct proc_maps *maps, const struct proc_map *map);
void proc_maps_free(struct proc_maps *maps);
/* The mapping that holds addr, or NULL. */
const struct proc_map *proc_maps_at(const struct proc_maps *maps, uint64_t addr);
/* The first mapping (offset 0) of a file whose base name is `name`, or, when `name` ends in '*',
 * begins with it; one that has code goes before a copy that is only data. NULL when there is none. */
const struct proc_map *proc_maps_library(const struct proc_maps *maps, const char *name);
/* Returns whether the file that begins in this mapping is only data there, and has its code elsewhere: a copy, as debuggers make it. */
int proc_maps_is_copy(const struct proc_maps *maps, const struct proc_map *first);
/* Returns 1 when the process has mapped a file whose path contains `part`, else 0; -errno when its mappings cannot be read, -ESRCH: it has none. */
int proc_has_mapped(pid_t pid, const char *part);
/* The same, for files mapped MAP_SHARED only: faster. */
int proc_has_shared(pid_t pid, const char *part);

/* ---- state, threads, ids ---- */

/* Reads one field of /proc/PID/status or, with tid, of that thread's: "Uid", "Seccomp", "SigIgn"
 * ... Stores the text after the colon and the blanks. -ENOENT: there is no such field. */
int proc_status(pid_t pid, pid_t tid, const char *field, char *buf, size_t n);
/* Returns the first number in such a field, in base 10, or 16 for sets of signals; 0 also when there is no such field. */
uint64_t proc_status_number(pid_t pid, pid_t tid, const char *field, int base);
/* Returns the number of seccomp filters; 0: none; -1: seccomp's strict mode; -2: there are some, but the kernel does not tell how many
 * (before Linux 5.9). */
long proc_filters(pid_t pid, pid_t tid);
/* Returns the id of the thread (0: of the process) in its own pid namespace, or `tid` or `pid` itself where that is not known. */
pid_t proc_own_id(pid_t pid, pid_t tid);
/* Stores the kernel's id of the current boot; "" when it is not known. */
void proc_boot_id(char *buf, size_t n);
/* Whether `id` is the current boot's. The id is read once and kept, as some callers ask ten times. */
int proc_is_boot(const char *id);
/* Returns the inode number of the process's namespace of this kind ("pid", "mnt"), of our own with pid 0; 0: not known. */
uint64_t proc_namespace(pid_t pid, const char *kind);
/* Whether the process is in our own namespace of this kind; also true when that is not known. */
int proc_same_namespace(pid_t pid, const char *kind);
/* Stores the name and state letter ('R', 'S', 'D', 'T', 't', 'Z', 'X') of the thread or, with tid 0, of the process. */
int proc_task(pid_t pid, pid_t tid, char *name, size_t n, char *state);
/* Stores the start time in clock ticks since boot: it differs between two processes that had the same pid. */
int proc_began(pid_t pid, uint64_t *ticks);
/* The same, and the state letter, from one reading. */
int proc_began_as(pid_t pid, uint64_t *ticks, char *state);
/* Whether the process has ended: a zombie that nobody has waited for, or dead. */
static inline int proc_is_over(char state) {
    return state == 'Z' || state == 'X';
}
/* Parses /proc/.../syscall. Returns 1 when the thread sleeps in the kernel, in that system call; 0 when it runs or that is not known. */
struct proc_call {
    long number;            /* -1: not in a system call */
    uint64_t first, sp, pc; /* first argument; registers at entry */
};
int proc_call(const char *text, struct proc_call *out);
/* Whether the process, or the thread with this id, exists and has not ended. */
int proc_is_running(pid_t pid);
/* Lists the thread ids, ascending; *out is malloc()ed, or NULL. Returns how many, or -errno: -ESRCH, the process is gone. */
ssize_t proc_tids(pid_t pid, pid_t **out);
/* Reads the file of that name in /proc/PID/task/TID or, with tid 0, in /proc/PID: its first n - 1 bytes and a NUL. Returns the length, or -errno. */
ssize_t proc_file(pid_t pid, pid_t tid, const char *name, char *buf, size_t n);
/* Stores what the link /proc/PID/NAME points to ("cwd", "exe", "ns/mnt"). */
int proc_link(pid_t pid, const char *name, char *buf, size_t n);
/* Stores a variable of the process's initial environment. -ENOENT: it is not set. */
int proc_environ(pid_t pid, const char *name, char *buf, size_t n);

/* ---- memory ---- */

/*
 * Identifies the program that the process runs. id[0] identifies the process (its start time); id[1] changes at every exec: it is a hash of
 * what the kernel told the program at its start (auxv), 16 random bytes included. Returns 0 or -errno.
 */
int proc_image(pid_t pid, uint64_t id[2]);

/* Reads or writes memory of the process (process_vm_readv): all n bytes, or -EFAULT. */
int proc_read(pid_t pid, uint64_t addr, void *buf, size_t n);
int proc_write(pid_t pid, uint64_t addr, const void *buf, size_t n);

#endif
