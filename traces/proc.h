/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc.h - what /proc says of a process, another one or our own: its mappings, threads, state, credentials, memory; and the text of
 * a small file. For the agent, the writer, the tools and libprobing-inspect alike.
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
#include <sys/types.h>
#include <unistd.h>

#include "array.h"
#include "auto.h"

/* ---- small files, of /proc and /sys ---- */

/* The file's bytes from fd, as many as fit, and a NUL. Returns how many. */
static inline size_t proc_read_fd(int fd, char *buf, size_t n) {
    size_t have = 0;
    for (ssize_t r = 1; fd >= 0 && r > 0 && have + 1 < n; have += r > 0 ? (size_t)r : 0)
        r = pread(fd, buf + have, n - 1 - have, (off_t)have);
    buf[have] = 0;
    return have;
}

/* The same of a file that is opened for it; 0 bytes also when it cannot be. */
static inline size_t proc_read_file(const char *path, char *buf, size_t n) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t have = proc_read_fd(fd, buf, n);
    if (fd >= 0)
        close(fd);
    return have;
}

/* Where field n (proc(5), from 3 on) of the text of a /proc/PID/stat begins; NULL: there is no such field. */
static inline char *proc_stat_field(char *stat, int n) {
    char *p = strrchr(stat, ')'); /* the name in field 2 may hold anything */
    for (int field = 2; p && field < n; field++)
        p = strchr(p + 1, ' ');
    return p ? p + 1 : NULL;
}

/* Where in the text stands what is behind `name` and some of the characters `between` at the start of a line; NULL: no line has it. */
char *proc_value(const char *text, const char *name, const char *between);

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
int proc_maps_read(pid_t pid, struct proc_maps *out); /* proc_maps_free() in the end */
/* One line of /proc/PID/maps, which is changed and has the path. 0 or -EBADMSG. No memory is taken. */
int proc_map_line(char *line, struct proc_map *m);
/* All, from lines of that form. */
int proc_maps_parse(const char *text, struct proc_maps *out);
/* Appends a copy of *map: in ascending order. */
int proc_maps_add(struct proc_maps *maps, const struct proc_map *map);
void proc_maps_free(struct proc_maps *maps);
/* The mapping that holds addr, or NULL. */
const struct proc_map *proc_maps_at(const struct proc_maps *maps, uint64_t addr);
/* The first mapping (offset 0) of a file whose base name is `name`, or, when `name` ends in '*',
 * begins with it. NULL when there is none. */
const struct proc_map *proc_maps_library(const struct proc_maps *maps, const char *name);
/* 1: the process has mapped a file with this in its path; 0: it has not; -errno: its mappings cannot be read, -ESRCH: it has none. */
int proc_has_mapped(pid_t pid, const char *part);
/* The same of files that it has mapped to share them with others: faster. */
int proc_has_shared(pid_t pid, const char *part);

/* ---- state, threads, ids ---- */

/* One field of /proc/PID/status or, with tid, of that thread: "Uid", "Seccomp", "SigIgn" ... The text
 * after the colon and the blanks. -ENOENT: there is no such field. */
int proc_status(pid_t pid, pid_t tid, const char *field, char *buf, size_t n);
/* The first number in it, in base 10 or, of signals, 16; 0 also where there is no such field. */
uint64_t proc_status_number(pid_t pid, pid_t tid, const char *field, int base);
/* Under how many seccomp filters it is: 0 of none, -1 of seccomp's strict mode, -2 where there are some and the kernel does not say how
 * many (before Linux 5.9). */
long proc_filters(pid_t pid, pid_t tid);
/* The id that the thread (0: the process) has in its own pid namespace; `tid` or `pid` where that is not known. */
pid_t proc_own_id(pid_t pid, pid_t tid);
/* The kernel's number for the time since it was started, "" where it is not known. */
void proc_boot_id(char *buf, size_t n);
/* Whether that is this one. It is read once: a question to one process asks ten times. */
int proc_is_boot(const char *id);
/* The number of its namespace of this kind ("pid", "mnt"), with pid 0 of our own; 0: not known. */
uint64_t proc_namespace(pid_t pid, const char *kind);
/* Whether both see the same of what it has; yes where that is not known. */
int proc_same_namespace(pid_t pid, const char *kind);
/* The name and state letter ('R', 'S', 'D', 'T', 't', 'Z', 'X') of the thread or, with tid 0, of the process. */
int proc_task(pid_t pid, pid_t tid, char *name, size_t n, char *state);
/* When it began, in clock ticks since the machine did: of two processes with one pid that is not the same. */
int proc_began(pid_t pid, uint64_t *ticks);
/* And its state letter, by one reading. */
int proc_began_as(pid_t pid, uint64_t *ticks, char *state);
/* Whether it has ended: nobody has asked for it yet (a zombie), or it is just going. */
static inline int proc_is_over(char state) {
    return state == 'Z' || state == 'X';
}
/* What its file `syscall` says of a thread: 1, it sleeps in the kernel, in that system call; 0, it runs, or that is not known. */
struct proc_call {
    long number;            /* -1: in none */
    uint64_t first, sp, pc; /* argument; registers as it went in */
};
int proc_call(const char *text, struct proc_call *out);
/* Whether the process, or the thread with this id, is there and has not ended. */
int proc_is_running(pid_t pid);
/* Thread ids, ascending; *out is malloc()ed, or NULL. Returns how many, or -errno: -ESRCH, it is gone. */
ssize_t proc_tids(pid_t pid, pid_t **out);
/* The file of that name in /proc/PID/task/TID or, with tid 0, in /proc/PID: its first n - 1 bytes, ended by NUL. How many, or -errno. */
ssize_t proc_file(pid_t pid, pid_t tid, const char *name, char *buf, size_t n);
/* What /proc/PID/NAME points to ("cwd", "exe", "ns/mnt"). */
int proc_link(pid_t pid, const char *name, char *buf, size_t n);
/* A variable of the process's initial environment. -ENOENT. */
int proc_environ(pid_t pid, const char *name, char *buf, size_t n);

/* ---- memory ---- */

/*
 * Which program it runs: [0] is the process (when it began), [1] changes at every exec: a hash of what the kernel told the
 * program at its start (auxv), 16 random bytes of it included. 0 or -errno.
 */
int proc_image(pid_t pid, uint64_t id[2]);

/* Memory of the process (process_vm_readv): all n bytes or -EFAULT. */
int proc_read(pid_t pid, uint64_t addr, void *buf, size_t n);
int proc_write(pid_t pid, uint64_t addr, const void *buf, size_t n);

#endif
