/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pywalk_truth PID STACKS stop|running: reads so many stacks of a process that never stands still, and prints each
 * different one once, as JSON, with how often it was seen. A test then finds those that are impossible.
 *
 * stop: all threads are stopped (ptrace) for each look, at random moments. running: no thread is stopped; as in probing,
 * a thread's stack is marked unless the thread slept before and after the look and got no CPU time in between.
 * Output: {"looks":N,"read":N,"unread":N,"marked":N,"stacks":[{"n":times,"marked":bool,"frames":[["name","file",line],...]},...]}
 */
#include "find_python.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 64
#define MAX_FRAMES  512
#define SLOTS       (1u << 18)

struct stack {
    uint64_t hash, times;
    bool marked;
    size_t n;
    char *text; /* its frames as JSON */
};

static struct stack *table;
static size_t kept;
static pid_t target, stopped[256];
static int n_stopped;

/* ---- stopping ---- */

static int stop_all(void) {
    char dir[64];
    int added;

    n_stopped = 0;
    snprintf(dir, sizeof dir, "/proc/%d/task", (int)target);
    do {
        DIR *d = opendir(dir);
        added = 0;
        if (d == NULL)
            return -1;
        for (struct dirent *e; (e = readdir(d)) != NULL;) {
            pid_t tid = (pid_t)atoi(e->d_name);
            int i = 0, status;
            while (i < n_stopped && stopped[i] != tid)
                i++;
            if (tid == 0 || i < n_stopped || n_stopped == 256)
                continue;
            if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) != 0 ||
                ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) != 0 ||
                waitpid(tid, &status, __WALL) != tid)
                continue;
            stopped[n_stopped++] = tid;
            added++;
        }
        closedir(d);
    } while (added > 0);
    return 0;
}

/*
 * Returns whether the thread is still where it was when its stack could not be read the last time. On a busy machine a thread
 * may wait for a CPU during many looks, and one moment of it must not count as many.
 */
static bool same_moment(pid_t tid) {
    static struct {
        pid_t tid;
        struct user_regs_struct regs;
    } unread[MAX_THREADS];
    static int n_unread;
    struct user_regs_struct regs;
    struct iovec room = {&regs, sizeof regs};
    int i = 0;

    memset(&regs, 0, sizeof regs);
    if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &room) != 0)
        return false;
    while (i < n_unread && unread[i].tid != tid)
        i++;
    if (i == MAX_THREADS)
        return false;
    if (i < n_unread && memcmp(&unread[i].regs, &regs, sizeof regs) == 0)
        return true;
    n_unread += i == n_unread;
    unread[i].tid = tid;
    unread[i].regs = regs;
    return false;
}

static void go(void) {
    for (int i = 0; i < n_stopped; i++)
        ptrace(PTRACE_DETACH, stopped[i], NULL, NULL);
}

static uint64_t used_ns(clockid_t clock) {
    struct timespec t = {0, 0};

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Waits until the program has run for some more random microseconds: on a busy machine it may stand still by itself. */
static void let_run(clockid_t clock) {
    static uint64_t rng = 88172645463325252u, last;
    struct timespec t = {0, 20000};

    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    for (int i = 0; i < 20000 && used_ns(clock) < last + rng % 150000; i++)
        nanosleep(&t, NULL);
    last = used_ns(clock);
}

/*
 * -1: it is awake. Else how much CPU time it has had, and where it sleeps. The kernel says where only when it has really
 * left the CPU (a thread is called sleeping some instructions before that, and its CPU time is brought up to date then).
 */
static int64_t asleep(uint32_t tid) {
    char path[64], line[512];
    unsigned long long ran = 0;
    uint64_t where = 5381;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/task/%u/syscall", (int)target, tid);
    f = fopen(path, "re");
    if (f == NULL || fgets(line, sizeof line, f) == NULL)
        strcpy(line, "running");
    if (f != NULL)
        fclose(f);
    if (line[0] == 'r')
        return -1;
    for (const char *p = line; *p != '\0'; p++)
        where = where * 33 + (unsigned char)*p;
    snprintf(path, sizeof path, "/proc/%d/task/%u/schedstat", (int)target, tid);
    f = fopen(path, "re");
    if (f == NULL || fscanf(f, "%llu", &ran) != 1)
        ran = where = 0;
    if (f != NULL)
        fclose(f);
    return (int64_t)((where * 0x9e3779b97f4a7c15ull ^ ran) >> 1);
}

/* ---- keeping ---- */

static size_t quote(char *to, size_t room, const char *s) {
    size_t n = 0;

    to[n++] = '"';
    for (; *s != '\0' && n + 8 < room; s++) {
        if ((unsigned char)*s < 0x20)
            to[n++] = '?';
        else {
            if (*s == '"' || *s == '\\')
                to[n++] = '\\';
            to[n++] = *s;
        }
    }
    to[n++] = '"';
    return n;
}

static char *write_down(const struct pywalk *pw, const struct pywalk_frame *f, int n) {
    static struct pywalk_code code;
    static char text[1 << 20];
    size_t at = 0;

    for (int i = 0; i < n && at < sizeof text - 4096; i++) {
        int rc = pywalk_code(pw, f[i].code, &code);
        if (rc != 0)
            strcpy(code.name, strcpy(code.file, "?"));
        at += (size_t)snprintf(text + at, sizeof text - at, "%s[", i > 0 ? "," : "");
        at += quote(text + at, sizeof text - at, code.name);
        text[at++] = ',';
        at += quote(text + at, sizeof text - at, code.file);
        at += (size_t)snprintf(text + at, sizeof text - at, ",%d]",
                               rc == 0 ? pywalk_frame_line(pw, &code, f[i].lasti) : 0);
    }
    text[at] = '\0';
    return strdup(text);
}

static int keep(const struct pywalk *pw, const struct pywalk_frame *f, int n, bool marked) {
    uint64_t h = marked ? 3 : 7, id;
    size_t at;

    for (int i = 0; i < n; i++) {
        if (pywalk_code_identity(pw, f[i].code, &id) != 0)
            id = 1;
        h = (h ^ id) * 0x9e3779b97f4a7c15ull;
        h = (h ^ (uint32_t)f[i].lasti) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 31;
    }
    h |= 1;
    for (at = h % SLOTS; table[at].hash != 0 && table[at].hash != h;)
        at = (at + 1) % SLOTS;
    if (table[at].hash == 0) {
        if (++kept > SLOTS / 2)
            return -1;
        table[at] = (struct stack){h, 0, marked, (size_t)n, write_down(pw, f, n)};
    }
    table[at].times++;
    return 0;
}

int main(int argc, char **argv) {
    static struct pywalk_thread threads[MAX_THREADS];
    static struct pywalk_frame frames[MAX_FRAMES];
    struct pywalk_found found;
    struct pywalk pw;
    long wanted = argc > 2 ? atol(argv[2]) : 0, got = 0, looks = 0, unread = 0, marked = 0;
    bool stop = argc > 3 && strcmp(argv[3], "stop") == 0;
    clockid_t clock = CLOCK_MONOTONIC;
    int rc, cut, first = 1;

    if (wanted <= 0) {
        fprintf(stderr, "usage: pywalk_truth PID STACKS stop|running\n");
        return 2;
    }
    target = (pid_t)atoi(argv[1]);
    clock_getcpuclockid(target, &clock);
    table = calloc(SLOTS, sizeof *table);
    rc = table != NULL ? find_python(target, &found) : -ENOMEM;
    for (int i = 0; rc == 0 && i < 100; i++) {
        rc = pywalk_init(&pw, (struct pywalk_mem){pywalk_read_process, (void *)(intptr_t)target},
                         &found.target);
        if (rc != -EBADMSG)
            break;
        rc = 0;
    }
    if (rc != 0) {
        fprintf(stderr, "pywalk_truth: %s\n", strerror(-rc));
        return 3;
    }
    for (; got < wanted && looks < 100 * wanted; looks++) {
        let_run(clock);
        if (stop && stop_all() != 0)
            break;
        int n = pywalk_threads(&pw, threads, MAX_THREADS, NULL);
        for (int i = 0; i < n && !stop; i++)
            threads[i].ident = (uint64_t)asleep(threads[i].tid);
        if (n < 0)
            unread++;
        for (int i = 0; i < n; i++) {
            int count = pywalk_frames(&pw, threads[i].tstate, frames, MAX_FRAMES, &cut);
            bool mark = false;
            if (!stop) {
                int64_t before = (int64_t)threads[i].ident;
                mark = before < 0 || asleep(threads[i].tid) != before;
            }
            unread += count < 0 && !(stop && same_moment((pid_t)threads[i].tid));
            marked += count >= 0 && mark;
            got++;
            if (count > 0 && keep(&pw, frames, count, mark) != 0)
                i = n; /* full: what there is must do */
        }
        if (stop)
            go();
        if (kept > SLOTS / 2)
            break;
    }
    printf("{\"looks\":%ld,\"read\":%ld,\"unread\":%ld,\"marked\":%ld,\"stacks\":[", looks, got,
           unread, marked);
    for (size_t i = 0; i < SLOTS; i++) {
        if (table[i].hash == 0)
            continue;
        printf("%s\n{\"n\":%llu,\"marked\":%s,\"frames\":[%s]}", first ? "" : ",",
               (unsigned long long)table[i].times, table[i].marked ? "true" : "false",
               table[i].text != NULL ? table[i].text : "");
        first = 0;
    }
    printf("]}\n");
    return 0;
}
