/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_live - gives a live file that somebody has planted, or changes while it is read, to everything that reads live files: the list, a
 * client of the mailbox, and the code that finishes a dead process's trace.
 *
 *     fuzz_live ROUNDS SEED     damages a file in all ways, half of the time while it is being read; exit code 0, a crash, or
 *                               77: it may not change its root directory
 *
 * Finishing a trace creates the file that the live file names, and damage changes that name. So everything happens below a root directory
 * of its own, which is removed at the end. (With libFuzzer's main, use `chroot` by hand.)
 *
 * An input is a list of patches, 12 bytes each: where (u32, modulo the file's length) and what (u64), over the file of a
 * process that died with records in its rings. An offset beyond RESIZE cuts the file there instead. With clang
 * -fsanitize=fuzzer -DFUZZ_LIBFUZZER libFuzzer brings its own main.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "writer/writer.h"

#define PATCH  12
#define RESIZE 0xf0000000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int confined; /* the root directory is our own */

static struct {
    char dir[64], live[4096], trace[128];
    uint8_t *image, *trace_image; /* of the files, as the process left them */
    size_t size, trace_size;
} victim;

static uint8_t *slurp(const char *path, size_t *n) {
    struct stat st;
    int fd = open(path, O_RDONLY);
    uint8_t *p = fd >= 0 && fstat(fd, &st) == 0 ? malloc((size_t)st.st_size + 1) : NULL;

    *n = p ? (size_t)st.st_size : 0;
    if (p && read(fd, p, *n) != (ssize_t)*n)
        abort();
    if (fd >= 0)
        close(fd);
    return p;
}

static void put(const char *path, const uint8_t *p, size_t n) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);

    if (fd < 0 || ftruncate(fd, (off_t)n) != 0 || pwrite(fd, p, n, 0) != (ssize_t)n)
        abort();
    close(fd);
}

/* A process that has written a little, has more records in its rings, and dies. */
static void die(int path_to) {
    struct writer_options o = {
        .trace_path = victim.trace, .run_dir = victim.dir, .nrings = 3, .ring_size = 4096};
    struct writer *w;

    if (writer_open(&w, &o) != 0)
        _exit(1);
    const char *path = writer_live_path(w);
    for (int i = 0; i < 3; i++) {
        struct ring *r = live_ring_get(writer_live(w), (uint32_t)i + 1);
        uint64_t pcs[3] = {1, 2, 3};
        for (uint64_t n = 0; r && n < 20; n++) {
            size_t used = 0;
            uint64_t *f = ring_reserve(r, TRACE_stack, TRACE_stack_NFIELDS, sizeof pcs);
            if (f) {
                f[TRACE_stack_key] = 100 * (uint64_t)i + n + 1;
                ring_put_bytes(f, TRACE_stack_NFIELDS, TRACE_stack_native, pcs,
                               3 * sizeof(uint64_t), &used);
                ring_commit(f);
            }
            if ((f = ring_reserve(r, TRACE_sample, TRACE_sample_NFIELDS, 0))) {
                f[TRACE_sample_ts] = 1000 + n;
                f[TRACE_sample_stack] = 100 * (uint64_t)i + n + 1;
                ring_commit(f);
            }
            if (i == 1 && n == 5)
                writer_drain(w, WRITER_FLUSH);
        }
    }
    _exit(write(path_to, path, strlen(path)) < 0);
}

static void prepare(void) {
    int fds[2], status;
    pid_t pid;

    if (victim.image)
        return;
    strcpy(victim.dir, "/tmp/fuzz_live.XXXXXX");
    if (confined)
        strcpy(victim.dir, "/");
    else if (!mkdtemp(victim.dir))
        abort();
    if (pipe(fds) != 0)
        abort();
    snprintf(victim.trace, sizeof victim.trace, "%s/t.zst", victim.dir);
    if ((pid = fork()) == 0)
        die(fds[1]);
    close(fds[1]);
    if (read(fds[0], victim.live, sizeof victim.live - 1) <= 0 || waitpid(pid, &status, 0) != pid ||
        status != 0)
        abort();
    close(fds[0]);
    victim.image = slurp(victim.live, &victim.size);
    victim.trace_image = slurp(victim.trace, &victim.trace_size);
}

static void restore(void) {
    put(victim.live, victim.image, victim.size);
    put(victim.trace, victim.trace_image, victim.trace_size);
}

static void patch(const uint8_t *p) {
    uint32_t at;
    int fd = open(victim.live, O_RDWR);

    if (fd < 0)
        return;
    memcpy(&at, p, 4);
    if (at >= RESIZE)
        (void)!ftruncate(fd, (off_t)(at % (victim.size + 1)));
    else if (pwrite(fd, p + 4, 8, (off_t)(at % victim.size)) != 8)
        abort();
    close(fd);
}

/* Calls everything that the tools call. Whatever the files contain, these functions must return. */
static void read_all(void) {
    static struct writer_finished done;
    struct live *l;
    size_t len;
    int status;

    if (live_open(&l, victim.live, 0) == 0) {
        volatile size_t n = strlen(l->trace_path) + strlen(l->command) + strlen(l->host);
        (void)n;
        live_process_alive(l);
        live_close(l);
    }
    if (live_open(&l, victim.live, 1) == 0) {
        char reply[64];
        live_watch(l);
        live_mail_call(l, MAIL_FLUSH, "x", 1, 1, &status, reply, sizeof reply, &len);
        l->start_ticks = 0;
        live_unwatch(l);
        live_close(l);
    }
    writer_finish(victim.live, "killed", 0, &done);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    prepare();
    restore();
    for (size_t i = 0; i + PATCH <= size; i += PATCH)
        patch(data + i);
    read_all();
    return 0;
}

/* ---- without libFuzzer ---- */

static unsigned seed;

/* Chooses a patch of an important place: the geometry, a ring's head, its records, or the length of the file. */
static void choose(uint8_t p[PATCH], unsigned *s) {
    static const uint64_t values[] = {0,        1,          7,          64,        4096,
                                      1u << 31, UINT32_MAX, 1ull << 40, UINT64_MAX};
    const struct live *l = (const struct live *)victim.image;
    uint64_t value = rand_r(s) % 3 ? values[(unsigned)rand_r(s) % 9] : (uint64_t)rand_r(s) << 20;
    uint32_t at = 0;
    size_t ring = l->rings_off + (unsigned)rand_r(s) % l->nrings * l->ring_stride;

    switch (rand_r(s) % 6) {
    case 0:
        at = (uint32_t)((unsigned)rand_r(s) % 600);
        break;
    case 1:
        at = (uint32_t)offsetof(struct live, nrings) + (unsigned)rand_r(s) % 8 * 4;
        break;
    case 2:
        at = (uint32_t)ring + (unsigned)rand_r(s) % 16 * 8;
        break;
    case 3:
        at = (uint32_t)(ring + sizeof(struct ring)) + (unsigned)rand_r(s) % 512 * 8;
        break;
    case 4:
        at = (uint32_t)offsetof(struct live, trace_path) + (unsigned)rand_r(s) % 4096;
        value = 0x4141414141414141u;
        break;
    default:
        at = RESIZE + (unsigned)rand_r(s) % 0x0fffffffu;
    }
    memcpy(p, &at, 4);
    memcpy(p + 4, &value, 8);
}

static int reading; /* (a) */

/* Acts as the file's owner, who changes it while it is read. */
static void *change(void *unused) {
    unsigned s = seed * 7919 + 1;
    uint8_t p[PATCH];

    (void)unused;
    while (__atomic_load_n(&reading, __ATOMIC_ACQUIRE)) {
        choose(p, &s);
        patch(p);
        if (rand_r(&s) % 4 == 0) {
            int fd = open(victim.live, O_RDWR);
            if (fd >= 0) {
                (void)!pwrite(fd, victim.image, victim.size, 0);
                close(fd);
            }
        }
    }
    return NULL;
}

static void fuzz(unsigned rounds, unsigned from) {
    static struct writer_finished done;
    uint8_t p[4 * PATCH];

    prepare();
    restore();
    if (writer_finish(victim.live, "killed", 0, &done) != 0 || !done.recovered)
        abort(); /* undamaged it is finished, else nothing is tried here */
    for (seed = from; seed < from + rounds; seed++) {
        unsigned s = seed;
        pthread_t owner;
        unsigned n = (unsigned)rand_r(&s) % 4 + 1;
        for (unsigned i = 0; i < n; i++)
            choose(p + i * PATCH, &s);
        LLVMFuzzerTestOneInput(p, n * PATCH);
        restore();
        __atomic_store_n(&reading, 1, __ATOMIC_RELEASE);
        if (pthread_create(&owner, NULL, change, NULL) != 0)
            abort();
        for (int i = 0; i < 5; i++)
            read_all();
        __atomic_store_n(&reading, 0, __ATOMIC_RELEASE);
        pthread_join(owner, NULL);
    }
    printf("%u rounds\n", rounds);
}

/* ---- where it happens ---- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static int remove_tree(const char *dir) {
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Makes `dir` the root directory, with /proc in it, which the readers of live files and the leak checker need. Root may do that; other users
 * only where they can have a user namespace of their own. */
static int confine(const char *dir) {
    char map[64], proc[64];
    unsigned uid = geteuid();

    if (unshare(CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0)) != 0)
        return -1;
    if (uid) {
        snprintf(map, sizeof map, "%u %u 1", uid, uid);
        int fd = open("/proc/self/uid_map", O_WRONLY);
        if (fd < 0 || write(fd, map, strlen(map)) < 0)
            return -1;
        close(fd);
    }
    snprintf(proc, sizeof proc, "%s/proc", dir);
    confined = mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mkdir(proc, 0755) == 0 &&
               mount("/proc", proc, NULL, MS_BIND | MS_REC, NULL) == 0 && chroot(dir) == 0 &&
               chdir("/") == 0;
    return confined ? 0 : -1;
}

/* In a process of its own, whose status is returned. */
static int fuzz_confined(unsigned rounds, unsigned from) {
    char dir[] = "/tmp/fuzz_live.XXXXXX";
    int status = -1;
    pid_t pid = mkdtemp(dir) ? fork() : -1;

    if (pid == 0) {
        alarm(600);
        free(victim.image);
        free(victim.trace_image);
        memset(&victim, 0, sizeof victim); /* what was prepared lies elsewhere */
        if (confine(dir) != 0)
            _exit(77);
        fuzz(rounds, from);
        exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || remove_tree(dir) != 0)
        return -1;
    return status;
}

#ifndef FUZZ_LIBFUZZER
int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: fuzz_live ROUNDS SEED\n");
        return 2;
    }
    int status = fuzz_confined((unsigned)atoi(argv[1]), (unsigned)atoi(argv[2]));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
#else
__attribute__((unused)) static int (*const keep)(unsigned, unsigned) = fuzz_confined;
#endif
