/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pywalk_dump PID [--no-stop] [--tasks] [--record FILE]: all Python threads and frames of a process, as JSON. Stops the
 * process (ptrace) while it looks, so that what it sees is exact. --record also writes every piece of memory that was
 * read (u64 address, u64 length, bytes; first a struct pywalk_target, and the image's address or 0), which fuzz_pywalk replays.
 * --tasks: asyncio's tasks instead. --lines FILE: decodes line tables instead; see lines_main.
 */
#include "agent/pywalk/tasks.h"
#include "find_python.h"
#include "pywalk_line.h"
#include "read_target.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_THREADS 256
#define MAX_FRAMES  20000

/* Attaches to all threads, also to those that are created meanwhile. Returns how many, or -1. */
static int stop_all(pid_t pid) {
    static pid_t seen[1024];
    int n = 0, added;
    char dir[64];

    snprintf(dir, sizeof dir, "/proc/%d/task", (int)pid);
    do {
        DIR *d = opendir(dir);
        added = 0;
        if (d == NULL)
            return -1;
        for (struct dirent *e; (e = readdir(d)) != NULL;) {
            pid_t tid = (pid_t)atoi(e->d_name);
            int i = 0, status;
            while (i < n && seen[i] != tid)
                i++;
            if (tid == 0 || i < n || n == 1024)
                continue;
            if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) != 0 ||
                ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) != 0 ||
                waitpid(tid, &status, __WALL) != tid) {
                if (errno == ESRCH)
                    continue;
                closedir(d);
                return -1;
            }
            seen[n++] = tid;
            added++;
        }
        closedir(d);
    } while (added > 0);
    return n;
}

static void json(const char *s) {
    putchar('"');
    for (; *s != '\0'; s++) {
        if ((unsigned char)*s < 0x20)
            printf("\\u%04x", *s);
        else if (*s == '"' || *s == '\\')
            printf("\\%c", *s);
        else
            putchar(*s);
    }
    putchar('"');
}

static void print_frame(const struct pywalk *pw, const struct pywalk_frame *f) {
    static struct pywalk_code code;
    struct pywalk_position at;
    uint64_t identity = 0;
    int rc = pywalk_code(pw, f->code, &code), line;

    if (rc != 0) {
        printf("{\"error\":%d}", rc);
        return;
    }
    line = pywalk_frame_line(pw, &code, f->lasti);
    pywalk_position(pw, &code, f->lasti, &at);
    rc = pywalk_code_identity(pw, f->code, &identity);
    printf("{\"name\":");
    json(code.name);
    printf(",\"file\":");
    json(code.file);
    printf(",\"line\":%d,\"first\":%d,\"lasti\":%d,\"entry\":%s,\"identity\":%d,"
           "\"position\":[%d,%d,%d,%d]}",
           line, code.firstline, f->lasti, f->flags & PYWALK_ENTRY ? "true" : "false",
           rc == 0 && identity != 0, at.line, at.end_line, at.column, at.end_column);
}

static int dump_tasks(const struct pywalk *pw) {
    static struct pywalk_task tasks[20000];
    static struct pywalk_frame frames[MAX_FRAMES];
    struct pywalk_objects ob;
    int more = 0, n = pywalk_objects_init(&ob, pw);

    if (n == 0)
        n = pywalk_tasks(&ob, tasks, sizeof tasks / sizeof *tasks, &more);
    if (n < 0) {
        fprintf(stderr, "pywalk_dump: tasks: %s\n", strerror(-n));
        return 3;
    }
    printf("[");
    for (int i = 0; i < n; i++) {
        struct pywalk_task *t = &tasks[i];
        int count = pywalk_task_frames(&ob, t, frames, MAX_FRAMES);
        printf("%s\n{\"task\":%llu,\"name\":", i > 0 ? "," : "", (unsigned long long)t->task);
        json(t->name);
        printf(",\"state\":%d,\"waits_on\":", (int)t->state);
        json(t->waits_on);
        printf(",\"more\":%d,\"awaiters\":[", more);
        for (uint32_t k = 0; k < t->awaiters && k < PYWALK_TASK_AWAITERS; k++)
            printf("%s%llu", k > 0 ? "," : "", (unsigned long long)t->awaiter[k]);
        printf("],\"rc\":%d,\"frames\":[", count);
        for (int k = 0; k < count; k++) {
            printf("%s\n ", k > 0 ? "," : "");
            print_frame(pw, &frames[k]);
        }
        printf("]}");
    }
    printf("]\n");
    return 0;
}

/* Reads, for the record, what the fuzzer will look at besides the threads. */
static void record_tasks(const struct pywalk *pw) {
    static struct pywalk_task tasks[200];
    static struct pywalk_frame frames[1000];
    struct pywalk_objects ob;
    int more, n = pywalk_objects_init(&ob, pw);

    if (n == 0)
        n = pywalk_tasks(&ob, tasks, 200, &more);
    for (int i = 0; i < n; i++)
        pywalk_task_frames(&ob, &tasks[i], frames, 1000);
}

static int dump(const struct pywalk *pw, const struct pywalk_found *found) {
    static struct pywalk_thread threads[MAX_THREADS];
    static struct pywalk_frame frames[MAX_FRAMES];
    int more = 0, cut = 0, n = pywalk_threads(pw, threads, MAX_THREADS, &more);

    if (n < 0) {
        fprintf(stderr, "pywalk_dump: threads: %s\n", strerror(-n));
        return 3;
    }
    printf("{\"version\":\"%08x\",\"eval\":[%llu,%llu],\"more\":%d,\"threads\":[", pw->version,
           (unsigned long long)found->eval_start, (unsigned long long)found->eval_end, more);
    for (int i = 0; i < n; i++) {
        struct pywalk_thread *t = &threads[i];
        int count = pywalk_frames(pw, t->tstate, frames, MAX_FRAMES, &cut);
        printf(
            "%s\n{\"tid\":%u,\"ident\":%llu,\"gil\":%s,\"main\":%s,\"flags\":%u,\"interp\":%lld,\"rc\":%d,"
            "\"cut\":%d,\"frames\":[",
            i > 0 ? "," : "", t->tid, (unsigned long long)t->ident,
            t->flags & PYWALK_HOLDS_GIL ? "true" : "false",
            t->flags & PYWALK_MAIN ? "true" : "false", t->flags, (long long)t->interp_id, count,
            cut);
        for (int k = 0; k < count; k++) {
            printf("%s\n ", k > 0 ? "," : "");
            print_frame(pw, &frames[k]);
        }
        printf("]}");
    }
    printf("]}\n");
    return 0;
}

/* A file of cases, little-endian: u32 version, u32 table length, i32 first line, u32 count, the table, and count
 * times five i32: an offset, and what is expected there (line, end line, column, end column). Prints each difference; the exit code says whether there was one. */
static int lines_main(const char *path) {
    FILE *f = fopen(path, "rb");
    uint32_t head[4];
    long cases = 0, checked = 0, wrong = 0;
    struct pywalk pw = {.mem = {pywalk_read_direct, NULL}};
    static struct pywalk_code code;
    struct pywalk_position at;
    int rc;

    if (f == NULL)
        return 3;
    while (fread(head, sizeof head, 1, f) == 1) {
        /* exactly as large as the table, so that a sanitizer sees a read beyond it */
        uint8_t *table = malloc(head[1] + 1);
        uint8_t *exact = malloc(head[1] > 0 ? head[1] : 1);
        int32_t want[5];
        if (table == NULL || exact == NULL || fread(table, 1, head[1], f) != head[1])
            return 3;
        memcpy(exact, table, head[1]);
        for (uint32_t i = 0; i < head[3]; i++) {
            if (fread(want, sizeof want, 1, f) != 1)
                return 3;
            int line = pywalk_line(head[0], exact, head[1], (int32_t)head[2], want[0]);
            pw.version = head[0];
            code.firstline = (int32_t)head[2];
            code.linetable = (uint64_t)(uintptr_t)exact;
            code.linetable_len = head[1];
            rc = pywalk_position(&pw, &code, want[0], &at);
            if ((rc != 0 || line != want[1] || memcmp(&at, want + 1, sizeof at) != 0) &&
                wrong++ < 10)
                printf(
                    "version %08x first %d offset %d: line %d, %d-%d, columns %d-%d; expected %d-%d, %d-%d\n",
                    head[0], (int32_t)head[2], want[0], line, at.line, at.end_line, at.column,
                    at.end_column, want[1], want[2], want[3], want[4]);
            checked++;
        }
        free(table);
        free(exact);
        cases++;
    }
    fclose(f);
    printf("%ld code objects, %ld instructions, %ld wrong\n", cases, checked, wrong);
    return wrong != 0;
}

int main(int argc, char **argv) {
    struct pywalk_found found;
    struct pywalk pw;
    const char *path = NULL;
    int stop = 1, tasks = 0, rc;

    if (argc == 3 && strcmp(argv[1], "--lines") == 0)
        return lines_main(argv[2]);
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--no-stop") == 0)
            stop = 0;
        else if (strcmp(argv[i], "--tasks") == 0)
            tasks = 1;
        else if (strcmp(argv[i], "--record") == 0 && i + 1 < argc)
            path = argv[++i];
    }
    target = argc > 1 ? (pid_t)atoi(argv[1]) : 0;
    if (target <= 0) {
        fprintf(stderr,
                "usage: pywalk_dump PID [--no-stop] [--tasks] [--record FILE] | --lines FILE\n");
        return 2;
    }
    rc = find_python(target, &found);
    if (rc != 0) {
        fprintf(stderr, "pywalk_dump: no Python found: %s\n", strerror(-rc));
        return 3;
    }
    if (stop && stop_all(target) < 0) {
        fprintf(stderr, "pywalk_dump: cannot stop %d: %s\n", (int)target, strerror(errno));
        return 3;
    }
    if (path != NULL) {
        record = fopen(path, "wb");
        /* Before 3.11 the version is searched for in the whole image, which would be most of the recorded file. */
        uint64_t image = found.target.version >= 0x030b0000 ? found.image : 0;
        struct pywalk_found again;
        if (record == NULL || fwrite(&found.target, sizeof found.target, 1, record) != 1 ||
            fwrite(&image, sizeof image, 1, record) != 1)
            return 3;
        if (image != 0)
            pywalk_find_image((struct pywalk_mem){read_target, NULL}, image, &again);
    }
    /* Recording needs a callback of its own; without recording, the callback that reads in batches is tested. */
    rc = pywalk_init(&pw,
                     record != NULL
                         ? (struct pywalk_mem){read_target, NULL}
                         : (struct pywalk_mem){pywalk_read_process, (void *)(intptr_t)target},
                     &found.target);
    if (rc != 0) {
        fprintf(stderr, "pywalk_dump: init: %s\n", strerror(-rc));
        return 3;
    }
    rc = tasks ? dump_tasks(&pw) : dump(&pw, &found);
    if (record != NULL && !tasks && pw.version >= 0x030b0000)
        record_tasks(&pw);
    if (record != NULL)
        fclose(record);
    return rc;
}
