/* SPDX-License-Identifier: Apache-2.0 */
/* live.h: run directory, creating and opening, who is refused, rings, and the mailbox. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "writer/live.h"

static char dir[64];

static int setup(void **state) {
    (void)state;
    strcpy(dir, "/tmp/test_live.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state) {
    char cmd[128];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static uint64_t allocated(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static size_t resident_pages(struct live *l) {
    size_t n = (l->file_size + 4095) / 4096, resident = 0;
    unsigned char *pages = calloc(n, 1);
    assert_non_null(pages);
    assert_int_equal(mincore(l, l->file_size, pages), 0);
    for (size_t i = 0; i < n; i++)
        resident += pages[i] & 1;
    free(pages);
    return resident;
}

/*
 * A new process's file is a hole but for the heads and the records that were written. If the kernel read ahead, the heads alone would take
 * 12 MB, and the first record of each thread 128 KB: half of the CPU time that a forked child spends on the beginning of its recording.
 */
static void test_only_what_is_written_is_in_memory(void **state) {
    char path[4096];
    struct live *l;
    (void)state;
    assert_int_equal(live_create(&l, dir, 64, 131072, 1u << 20, path, sizeof path), 0);
    size_t heads = resident_pages(l);
    assert_true(heads >= l->nrings && heads < 2 * l->nrings);
    for (unsigned i = 0; i < 8; i++) { /* 8 KB: two pages, or three */
        struct ring *r = live_ring_get(l, i);
        assert_non_null(r);
        memset(r->data, 'x', 8192);
        memset(r->data, 0, 8192);
    }
    assert_true(resident_pages(l) >= heads + 8 && resident_pages(l) <= heads + 8 * 3);
    live_free(l);
    unlink(path);
}

/* Another thread goes on in the ring of one that has completed its records, also before they are drained, unless it is half full. */
static void test_a_ring_that_was_left(void **state) {
    char path[4096];
    struct live *l;
    uint64_t *f;
    (void)state;
    assert_int_equal(live_create(&l, dir, 2, 8192, 0, path, sizeof path), 0);
    struct ring *first = live_ring_get(l, 1), *second;
    for (unsigned i = 0; i < 1000 && ring_used(first) < 4096; i++) {
        assert_ptr_equal(live_ring(l, 0), first);
        assert_non_null(f = ring_reserve(first, 7, 2, 0));
        ring_commit(f);
        live_ring_leave(first);
        if (ring_used(first) < 4096)
            assert_ptr_equal(live_ring_get(l, 1 + i), first);
    }
    second = live_ring_get(l, 2000);
    assert_ptr_equal(second, live_ring(l, 1));
    assert_null(live_ring_get(l, 2001));
    live_ring_orphan(second); /* its last record may be incomplete: it must be drained before */
    assert_null(live_ring_get(l, 2001));
    ring_release(first, 4096);
    assert_ptr_equal(live_ring_get(l, 2001), first);
    live_free(l);
    unlink(path);
}

/* They take no space until a thread has one, and then all that it needs. */
static void test_large_rings(void **state) {
    const uint64_t large = 1u << 20;
    struct ring *r[LIVE_NLARGE];
    char path[4096];
    struct live *l;
    (void)state;
    assert_int_equal(live_create(&l, dir, 2, 8192, large, path, sizeof path), 0);
    assert_int_equal(l->nrings, 2 + LIVE_NLARGE);
    assert_true(allocated(path) < l->file_size - (LIVE_NLARGE - 1) * large);
    for (unsigned i = 0; i < LIVE_NLARGE; i++) {
        uint64_t before = allocated(path);
        r[i] = live_ring_get_large(l, i);
        if (i == 0 && r[0]->size == 8192) { /* a kernel before 5.14 */
            live_free(l);
            skip();
        }
        assert_int_equal(r[i]->size, large);
        assert_true(allocated(path) >= before + large - 8192);
        assert_ptr_equal(r[i], live_ring(l, 2 + i));
        memset(r[i]->data, 'x', large);
    }
    /* Then threads get small rings, and the large ones are not given to others in their place. */
    assert_int_equal(live_ring_get_large(l, 7)->size, 8192);
    assert_int_equal(live_ring_get(l, 8)->size, 8192);
    assert_null(live_ring_get(l, 9));
    assert_null(live_ring_get_large(l, 9));
    for (unsigned i = 0; i + 1 < l->nrings; i++)
        assert_true((char *)live_ring(l, i + 1) >=
                    (char *)live_ring(l, i) + sizeof(struct ring) + live_ring(l, i)->size);
    assert_true((char *)(r[LIVE_NLARGE - 1]->data + large) <= (char *)l + l->file_size);
    live_free(l);
}

static int first_place(char *buf, size_t n) {
    int err = -ENOENT;
    for (unsigned i = 0; err && i < LIVE_PLACES; i++)
        err = live_place(i, getenv("PROBING_RUN_DIR"), getenv("XDG_RUNTIME_DIR"), buf, n);
    return err;
}

static void test_run_dir(void **state) {
    (void)state;
    char buf[4096], want[128], other[128];
    struct stat st;
    snprintf(want, sizeof want, "%s/run", dir);
    snprintf(other, sizeof other, "%s/probing", dir);
    setenv("PROBING_RUN_DIR", want, 1);
    setenv("XDG_RUNTIME_DIR", dir, 1);
    assert_int_equal(first_place(buf, sizeof buf), 0);
    assert_string_equal(buf, want);
    assert_int_equal(stat(want, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    /* Folders that are open to others, symbolic links, or no absolute paths: the next folder is taken. */
    chmod(want, 0755);
    assert_int_equal(first_place(buf, sizeof buf), 0);
    assert_string_equal(buf, other);
    rmdir(want);
    assert_int_equal(symlink(other, want), 0);
    assert_int_equal(first_place(buf, sizeof buf), 0);
    assert_string_equal(buf, other);
    unlink(want);
    setenv("PROBING_RUN_DIR", "run", 1);
    assert_int_equal(first_place(buf, sizeof buf), 0);
    assert_string_equal(buf, other);
    assert_int_not_equal(access("run", F_OK), 0); /* and not made where the program happens to be */
    unsetenv("PROBING_RUN_DIR");
    setenv("XDG_RUNTIME_DIR", "/nowhere/at/all", 1);
    assert_int_equal(first_place(buf, sizeof buf), 0);
    /* If another user has taken that name in /tmp, which all users share, a folder of our own is made beside it. */
    snprintf(want, sizeof want, "/tmp/probing-%u", (unsigned)geteuid());
    if (lstat(want, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
        !(st.st_mode & 077)) {
        assert_string_equal(buf, want);
    } else {
        strcat(want, "-");
        assert_memory_equal(buf, want, strlen(want));
    }
    assert_int_equal(stat(buf, &st), 0);
    assert_int_equal(st.st_uid, geteuid());
    assert_int_equal(st.st_mode & 07777, 0700);
}

static void test_problem(void **state) {
    (void)state;
    struct live *l;
    char path[4096], text[200];
    assert_int_equal(live_create(&l, dir, 1, 4096, 0, path, sizeof path), 0);
    strcpy(l->trace_path, "/x.zst");
    assert_string_equal(live_problem(l, text, sizeof text), ""); /* it starts */
    l->state = LIVE_RUNNING;
    assert_string_equal(live_problem(l, text, sizeof text), "sampling is off (sample_rate 0)");
    l->period_ns = 1;
    assert_string_equal(live_problem(l, text, sizeof text), ""); /* not listed yet */
    l->start_mono -= 60000 * SYS_MS;
    assert_string_equal(live_problem(l, text, sizeof text), "no Python thread is being sampled");
    l->threads = 1;
    assert_string_equal(live_problem(l, text, sizeof text), "");
    l->state = LIVE_FAILED;
    l->write_error = ENOSPC;
    assert_non_null(strstr(live_problem(l, text, sizeof text), "No space left on device"));
    unlink(path);
    live_close(l);
}

/* Returns the number of bytes that this process has read by system calls. */
static uint64_t bytes_read(void) {
    unsigned long long n = 0;
    FILE *f = fopen("/proc/self/io", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "rchar: %llu", &n), 1);
    fclose(f);
    return n;
}

/* Of a dead process's file only what its rings hold is read, and not the megabytes around it: a job may leave hundreds of such files. */
static void test_load_what_is_held(void **state) {
    struct live *l, *m;
    char path[4096];
    (void)state;
    assert_int_equal(live_create(&l, dir, 64, 131072, 1u << 20, path, sizeof path), 0);
    struct ring *r[] = {live_ring_get(l, 1), live_ring_get(l, 2), live_ring_get(l, 3)};
    for (unsigned i = 0; i < 5000; i++) { /* the second one goes around */
        uint64_t *f = ring_reserve(r[i % 2], 1, 6, 0);
        assert_non_null(f);
        for (unsigned k = 0; k < 6; k++)
            f[k] = i * 6 + k + 1;
        ring_commit(f);
        if (i % 2 == 0 || i < 3000)
            ring_release(r[i % 2], r[i % 2]->head - (i % 2 ? 1024 : 56));
    }
    assert_true(r[1]->tail % r[1]->size > r[1]->head % r[1]->size);
    ring_reserve(r[0], 1, 6, 0)[5] = 7; /* that is left unfinished */
    int fd = open(path, O_RDONLY);
    uint64_t before = bytes_read();
    assert_int_equal(live_load(&m, fd), 0);
    assert_true(bytes_read() - before < l->file_size / 16);
    close(fd);
    assert_memory_equal(m, l, sizeof *l);
    for (unsigned i = 0; i < l->nrings;
         i++) /* what was given back is zero, what was never used too */
        assert_memory_equal(live_ring(m, i), live_ring(l, i),
                            sizeof(struct ring) + live_ring(l, i)->size);
    live_free(m);
    live_free(l);
    unlink(path);
}

static void test_create_and_open(void **state) {
    (void)state;
    struct live *l, *m;
    char path[4096];
    struct stat st;
    assert_int_equal(live_create(&l, dir, 3, 8192, 0, path, sizeof path), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_true((uint64_t)st.st_blocks * 512 >= l->file_size); /* allocated: no SIGBUS later */
    assert_int_equal(l->pid, getpid());
    assert_true(l->start_ticks > 0 && l->start_mono > 0 && l->boot_id[0] && l->host[0]);
    assert_int_equal(live_open(&m, path, 0), 0);
    assert_int_equal(live_process_alive(m), 1);
    live_close(m);

    struct ring *a = live_ring_get(l, 10), *b = live_ring_get(l, 11), *c = live_ring_get(l, 12);
    assert_true(a && b && c && a != b && b != c);
    assert_int_equal(b->owner, 11);
    assert_int_equal(c->size, 8192);
    assert_null(live_ring_get(l, 13));
    assert_true((char *)c + sizeof *c + c->size <= (char *)l + l->file_size);

    assert_int_equal(live_create(&m, dir, 3, 5000, 0, path + 0, sizeof path), -EINVAL);
    assert_int_equal(live_create(&m, "/nowhere", 3, 8192, 0, path, sizeof path), -ENOENT);
    live_free(l);
}

/* A file as others might have made it. */
static void test_open_refuses(void **state) {
    (void)state;
    struct live *l, *m;
    char path[4096], link_path[128];
    assert_int_equal(live_create(&l, dir, 2, 4096, 0, path, sizeof path), 0);
    snprintf(link_path, sizeof link_path, "%s/link", dir);
    assert_int_equal(symlink(path, link_path), 0);
    assert_int_equal(live_open(&m, link_path, 1), -ELOOP);
    assert_int_equal(live_open(&m, dir, 0), -EPERM); /* a directory */
    chmod(path, 0640);
    assert_int_equal(live_open(&m, path, 0), -EPERM);
    chmod(path, 0600);
#define REFUSES(field, value, error)                                                               \
    do {                                                                                           \
        __typeof__(field) keep = field;                                                            \
        field = value;                                                                             \
        assert_int_equal(live_open(&m, path, 0), error);                                           \
        field = keep;                                                                              \
    } while (0)
    REFUSES(l->magic[0], 'X', -EBADMSG);
    REFUSES(l->version, LIVE_VERSION + 1, -EPROTONOSUPPORT);
    REFUSES(l->header_size, 100, -EBADMSG);
    REFUSES(l->file_size, l->file_size + 1, -EBADMSG);
    REFUSES(l->uid, 12345, -EBADMSG);
    REFUSES(l->nrings, 0, -EBADMSG);
    REFUSES(l->nrings, 3000, -EBADMSG);
    REFUSES(l->rings_off, l->file_size + 64, -EBADMSG);
    REFUSES(l->rings_off, 64, -EBADMSG);
    REFUSES(l->ring_stride, UINT64_MAX & ~63ull, -EBADMSG);
    REFUSES(l->nlarge, l->nrings + 1, -EBADMSG);
    REFUSES(l->large_stride, 64, -EBADMSG);
    REFUSES(l->large_stride, UINT64_MAX & ~63ull, -EBADMSG);
    REFUSES(l->pid_ns, l->pid_ns, 0); /* and as it was, it opens */
    live_close(m);
    int fd = open(path, O_RDONLY);
    static const uint64_t sizes[] = {8192, 4097, 0};
    for (int i = 0; i < 3; i++) {
        live_ring(l, 1)->size = sizes[i];
        assert_int_equal(live_load(&m, fd), -EBADMSG);
    }
    live_ring(l, 1)->size = 4096;
    assert_int_equal(live_load(&m, fd), 0);
    live_ring(l, 1)->size = 1 << 30; /* a copy: nothing in it changes */
    assert_int_equal(live_ring(m, 1)->size, 4096);
    live_free(m);

    /* The file is truncated while it is mapped: no SIGBUS, and the process counts as gone. */
    char reply[16];
    size_t len;
    int status;
    assert_int_equal(live_open(&m, path, 1), 0);
    assert_int_equal(live_watch(m), 0);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(live_process_alive(m), 0);
    assert_int_equal(live_mail_call(m, MAIL_FLUSH, NULL, 0, 50, &status, reply, 16, &len), -ESRCH);
    live_unwatch(m);
    live_close(m);
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(live_open(&m, path, 0), -EBADMSG);
    assert_int_equal(live_load(&m, fd), -EBADMSG);
    close(fd);
    unlink(path);
    assert_int_equal(live_open(&m, path, 0), -ENOENT);
}

static void test_alive(void **state) {
    (void)state;
    struct live *l;
    char path[4096];
    int pipefd[2];
    assert_int_equal(pipe(pipefd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int rc = live_create(&l, dir, 1, 4096, 0, path, sizeof path);
        ssize_t put = write(pipefd[1], path, sizeof path);
        pause();
        _exit(rc || put < 0);
    }
    assert_int_equal(read(pipefd[0], path, sizeof path), sizeof path);
    assert_int_equal(live_open(&l, path, 1), 0);
    assert_int_equal(live_process_alive(l), 1);
    l->start_ticks++; /* the pid was given to another */
    assert_int_equal(live_process_alive(l), 0);
    l->start_ticks--;
    l->boot_id[0] ^= 1;
    assert_int_equal(live_process_alive(l), 0);
    l->boot_id[0] ^= 1;
    assert_int_equal(live_process_alive(l), 1);
    kill(pid, SIGKILL);
    siginfo_t si;
    waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT); /* dead, but not reaped: a zombie */
    assert_int_equal(live_process_alive(l), 0);
    waitpid(pid, NULL, 0);
    assert_int_equal(live_process_alive(l), 0);
    live_close(l);
}

/* ---- the mailbox ---- */

enum answer { AT_ONCE, WHEN_INTERRUPTED, WHEN_GIVEN_UP };

struct agent {
    struct live *live;
    int stop, given_up; /* (a) */
    enum answer when;   /* (a) */
};

static void *agent_thread(void *arg) {
    struct agent *a = arg;
    enum mail_kind kind;
    const char *request;
    size_t len;
    char reply[100];
    while (!__atomic_load_n(&a->stop, __ATOMIC_ACQUIRE)) {
        if (live_mail_take(a->live, &kind, &request, &len)) {
            enum answer when = __atomic_load_n(&a->when, __ATOMIC_ACQUIRE);
            snprintf(reply, sizeof reply, "<%.*s>", (int)len, request);
            while (when == WHEN_INTERRUPTED &&
                   !__atomic_load_n(&a->live->mail_cancel, __ATOMIC_ACQUIRE))
                usleep(200);
            while (when == WHEN_GIVEN_UP && !__atomic_load_n(&a->given_up, __ATOMIC_ACQUIRE))
                usleep(200);
            if (when == WHEN_GIVEN_UP)
                usleep(100000); /* the next client waits by now */
            live_mail_reply(a->live, kind == MAIL_EVAL ? 0 : -ENOTSUP, reply, strlen(reply));
        }
        usleep(200);
    }
    return NULL;
}

/* The client that holds the mailbox gets its answer. */
static void *let_go(void *arg) {
    struct live *l = arg;
    usleep(100000);
    __atomic_store_n(&l->mail.lock, 0, __ATOMIC_RELEASE);
    return NULL;
}

static void test_mail(void **state) {
    (void)state;
    struct live *l;
    char path[4096], reply[100], tiny[4];
    int status = 1;
    size_t len;
    pthread_t t;
    assert_int_equal(live_create(&l, dir, 1, 4096, 0, path, sizeof path), 0);
    struct agent a = {.live = l};

    /* Nobody answers: the request is withdrawn, so that it is not executed later when nobody expects it. */
    assert_int_equal(live_mail_call(l, MAIL_EVAL, "a", 1, 50, &status, reply, sizeof reply, &len),
                     -ETIMEDOUT);
    assert_int_equal(l->mail.state, MAIL_IDLE);
    assert_int_equal(l->mail.lock, 0);
    assert_true(l->wake >= 1);

    assert_int_equal(pthread_create(&t, NULL, agent_thread, &a), 0);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(
            live_mail_call(l, MAIL_EVAL, "1+1", 3, 10000, &status, reply, sizeof reply, &len), 0);
        assert_int_equal(status, 0);
        assert_string_equal(reply, "<1+1>");
        assert_int_equal(len, 5);
    }
    assert_int_equal(
        live_mail_call(l, MAIL_FLUSH, NULL, 0, 10000, &status, tiny, sizeof tiny, &len), 0);
    assert_int_equal(status, -ENOTSUP);
    assert_string_equal(tiny, "<>");
    assert_int_equal(
        live_mail_call(l, MAIL_EVAL, "abcdef", 6, 10000, &status, tiny, sizeof tiny, &len), 0);
    assert_string_equal(tiny, "<ab");
    assert_int_equal(len, 8);
    assert_int_equal(live_mail_call(l, MAIL_EVAL, path, LIVE_MAIL + 1, 10, &status, tiny, 4, &len),
                     -EMSGSIZE);

    /* Interrupted when its time is over; an answer after that is recognized as such. */
    __atomic_store_n(&a.when, WHEN_INTERRUPTED, __ATOMIC_RELEASE);
    assert_int_equal(
        live_mail_call(l, MAIL_EVAL, "late", 4, 1000, &status, reply, sizeof reply, &len), 1);
    assert_string_equal(reply, "<late>");
    assert_int_equal(l->mail_cancel, 1);
    /* The client gave up while its request was being answered: no other client gets the late reply. */
    __atomic_store_n(&a.when, WHEN_GIVEN_UP, __ATOMIC_RELEASE);
    assert_int_equal(
        live_mail_call(l, MAIL_EVAL, "slow", 4, 100, &status, reply, sizeof reply, &len),
        -ETIMEDOUT);
    __atomic_store_n(&a.when, AT_ONCE, __ATOMIC_RELEASE);
    __atomic_store_n(&a.given_up, 1, __ATOMIC_RELEASE);
    assert_int_equal(
        live_mail_call(l, MAIL_EVAL, "next", 4, 10000, &status, reply, sizeof reply, &len), 0);
    assert_string_equal(reply, "<next>");

    /* Another client holds the mailbox; a dead client does not. */
    __atomic_store_n(&l->mail.lock, (uint32_t)getppid(), __ATOMIC_RELEASE);
    assert_int_equal(live_mail_call(l, MAIL_EVAL, "x", 1, 100, &status, reply, sizeof reply, &len),
                     -EBUSY);
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, let_go, l), 0);
    assert_int_equal(
        live_mail_call(l, MAIL_EVAL, "w", 1, 10000, &status, reply, sizeof reply, &len), 0);
    assert_string_equal(reply, "<w>");
    pthread_join(other, NULL);
    pid_t dead = fork();
    if (dead == 0)
        _exit(0);
    waitpid(dead, NULL, 0);
    __atomic_store_n(&l->mail.lock, (uint32_t)dead, __ATOMIC_RELEASE);
    assert_int_equal(
        live_mail_call(l, MAIL_EVAL, "y", 1, 10000, &status, reply, sizeof reply, &len), 0);
    assert_string_equal(reply, "<y>");

    __atomic_store_n(&a.stop, 1, __ATOMIC_RELEASE);
    pthread_join(t, NULL);
    l->start_ticks++; /* the process is gone */
    assert_int_equal(
        live_mail_call(l, MAIL_EVAL, "z", 1, 10000, &status, reply, sizeof reply, &len), -ESRCH);
    live_free(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_dir),
        cmocka_unit_test(test_problem),
        cmocka_unit_test(test_create_and_open),
        cmocka_unit_test(test_only_what_is_written_is_in_memory),
        cmocka_unit_test(test_a_ring_that_was_left),
        cmocka_unit_test(test_large_rings),
        cmocka_unit_test(test_load_what_is_held),
        cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_alive),
        cmocka_unit_test(test_mail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
