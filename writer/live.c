/* SPDX-License-Identifier: Apache-2.0 */
#include "live.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "../traces/own_file.h"
#include "../traces/plain_file.h"

#define PAGE 4096u /* live_leave() copies this much at a time */

/* ---- the run directory ---- */

/* Checks that the directory is ours alone, and has space for a live file. */
static int usable_dir(const char *path) {
    struct statvfs fs;
    struct stat st;
    if (lstat(path, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
        return -EPERM;
    if (access(path, W_OK | X_OK) < 0)
        return -errno;
    if (statvfs(path, &fs) == 0 &&
        ((uint64_t)fs.f_bavail * fs.f_frsize < (uint64_t)LIVE_NRINGS * LIVE_RING ||
         (fs.f_files && !fs.f_favail)))
        return -ENOSPC;
    return 0;
}

/* Finds our BASE/probing-UID-XXXXXX, or makes a new one, whose name nobody can have taken before. */
static int unguessable_dir(const char *base, char *buf, size_t n) {
    char head[32];
    size_t len = (size_t)snprintf(head, sizeof head, "probing-%u-", (unsigned)geteuid());
    int rc = -ENOENT;
    DIR *d = opendir(base);
    for (struct dirent *e; rc && d && (e = readdir(d));)
        if (!strncmp(e->d_name, head, len) &&
            (size_t)snprintf(buf, n, "%s/%s", base, e->d_name) < n)
            rc = usable_dir(buf);
    if (d)
        closedir(d);
    if (rc && (size_t)snprintf(buf, n, "%s/%sXXXXXX", base, head) < n &&
        (rc = mkdtemp(buf) ? own_dir(buf), usable_dir(buf) : -errno))
        rmdir(buf);
    return rc;
}

int live_place(unsigned i, const char *own, const char *xdg, char *buf, size_t n) {
    static const char *const base[] = {"/tmp", "/dev/shm", "/var/tmp"};
    struct stat st;
    size_t len = n;
    buf[0] = 0;
    if (i == 0 && own && *own)
        len = (size_t)snprintf(buf, n, "%s", own);
    else if (i == 1 && xdg && stat(xdg, &st) == 0 && st.st_uid == geteuid()) /* su keeps it */
        len = (size_t)snprintf(buf, n, "%s/probing", xdg);
    else if (i > 1 && i % 2 == 0)
        len = (size_t)snprintf(buf, n, "%s/probing-%u", base[i / 2 - 1], (unsigned)geteuid());
    else if (i > 1)
        return unguessable_dir(base[i / 2 - 1], buf, n);
    if (len >= n || buf[0] != '/')
        return -ENOENT;
    return own_dir_make(buf, 0700) ?: usable_dir(buf);
}

/* ---- create, open, close ---- */

#define RINGS_OFF ((sizeof(struct live) + 4095) & ~4095ull)

static uint64_t stride_of(uint64_t ring_size) {
    return (sizeof(struct ring) + ring_size + 127) & ~127ull;
}

static void fill_in(struct live *l, unsigned nrings, uint64_t ring_size, uint64_t large,
                    uint64_t file_size, uint64_t start_real) {
    memcpy(l->magic, LIVE_MAGIC, sizeof l->magic);
    l->version = LIVE_VERSION;
    l->header_size = sizeof *l;
    l->file_size = file_size;
    l->pid = (uint32_t)getpid();
    l->uid = geteuid();
    l->pid_ns = proc_namespace(0, "pid");
    proc_began(getpid(), &l->start_ticks);
    proc_boot_id(l->boot_id, sizeof l->boot_id);
    l->start_mono = sys_now();
    l->start_real = start_real;
    if (gethostname(l->host, sizeof l->host - 1) < 0)
        l->host[0] = '\0';
    l->rank = -1;
    l->nlarge = large ? LIVE_NLARGE : 0;
    l->nrings = nrings + l->nlarge;
    l->rings_off = RINGS_OFF;
    l->ring_stride = stride_of(ring_size);
    l->large_stride = stride_of(large);
    for (unsigned i = 0; i < l->nrings; i++)
        ring_init(live_ring(l, i), i < nrings ? ring_size : large);
    __atomic_store_n(&l->state, LIVE_STARTING, __ATOMIC_RELEASE);
}

/* Allocates space for all small rings, but only for the heads of the large ones. */
static int make_space(int fd, uint64_t small_end, unsigned nlarge, uint64_t stride, uint64_t size) {
    int rc = ftruncate(fd, (off_t)size) < 0 ? -errno : 0;

    /* posix_fallocate returns the error; it writes zeros where the file system does not support it. */
    if (!rc)
        rc = -posix_fallocate(fd, 0, (off_t)small_end);
    for (unsigned i = 0; !rc && i < nlarge; i++)
        rc = -posix_fallocate(fd, (off_t)(small_end + i * stride), sizeof(struct ring));
    return rc;
}

int live_create(struct live **out, const char *dir, unsigned nrings, uint64_t ring_size,
                uint64_t large, char *path, size_t n) {
    uint64_t real = sys_clock(CLOCK_REALTIME);
    uint64_t small_end = RINGS_OFF + nrings * stride_of(ring_size);
    unsigned nlarge = large ? LIVE_NLARGE : 0;
    uint64_t size = (small_end + nlarge * stride_of(large) + 4095) & ~4095ull;
    char begun[4096 + sizeof LIVE_BEGUN]; /* its name until it is complete */
    void *map = MAP_FAILED;

    if (nrings == 0 || ring_size < 4096 || (ring_size & (ring_size - 1)) || (large & (large - 1)))
        return -EINVAL;
    if ((size_t)snprintf(path, n, "%s/%d-%" PRIu64 ".live", dir, (int)getpid(), real) >= n)
        return -ENAMETOOLONG;
    if ((size_t)snprintf(begun, sizeof begun, "%s" LIVE_BEGUN, path) >= sizeof begun)
        return -ENAMETOOLONG;
    int fd = open(begun, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    own_file(fd);
    flock(fd, LOCK_EX | LOCK_NB); /* until complete; a file of a killed process is unlocked */
    int rc = make_space(fd, small_end, nlarge, stride_of(large), size);
    if (!rc)
        map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    /* A child must never write into its parent's rings. */
    if (!rc && (map == MAP_FAILED || madvise(map, size, MADV_DONTFORK) < 0))
        rc = -errno;
    if (!rc) {
        /* Without it the kernel reads ahead at each ring's head and first record: most of the file, which is to stay a hole. */
        madvise(map, size, MADV_RANDOM);
        fill_in(map, nrings, ring_size, large, size, real);
        rc = rename(begun, path) < 0 ? -errno : 0;
    }
    flock(fd, LOCK_UN); /* else the mapping would keep the lock */
    close(fd);
    if (rc && map != MAP_FAILED)
        munmap(map, size);
    if (rc)
        unlink(begun);
    else
        *out = map;
    return rc;
}

/* Whether the head's values are possible. It is a copy, so it cannot change after the check. */
static int check_head(const struct live *l, uint64_t size, uid_t owner) {
    if (memcmp(l->magic, LIVE_MAGIC, sizeof l->magic) != 0)
        return -EBADMSG;
    if (l->version > LIVE_VERSION)
        return -EPROTONOSUPPORT;
    if (l->header_size != sizeof *l || l->file_size != size || l->uid != owner || l->nrings == 0 ||
        l->nrings > 65536 || l->rings_off < sizeof *l || l->rings_off > size ||
        (l->rings_off & 63) || l->ring_stride < sizeof(struct ring) + 4096 ||
        (l->ring_stride & 63) || l->ring_stride > size || l->nlarge > l->nrings ||
        (l->large_stride & 63) || l->large_stride < sizeof(struct ring) || l->large_stride > size ||
        (l->nrings - l->nlarge) * l->ring_stride + l->nlarge * l->large_stride >
            size - l->rings_off)
        return -EBADMSG;
    return memchr(l->trace_path, 0, sizeof l->trace_path) && memchr(l->host, 0, sizeof l->host) &&
                   memchr(l->command, 0, sizeof l->command) &&
                   memchr(l->boot_id, 0, sizeof l->boot_id)
               ? 0
               : -EBADMSG;
}

/* Reads n bytes into p, an address in the copy l, from the same offset of the file. -EBADMSG: the file has just become shorter. */
static int copy_part(const struct live *l, int fd, void *p, size_t n) {
    size_t have;
    int rc = plain_file_read(fd, (uint64_t)((char *)p - (const char *)l), p, n, &have);
    return !rc && have < n ? -EBADMSG : rc;
}

/* Checks each ring's head and reads the records in it. That is little: most rings were never used, and released space is zero. */
static int copy_rings(const struct live *l, int fd) {
    int rc = 0;
    for (unsigned i = 0; !rc && i < l->nrings; i++) {
        struct ring *r = live_ring(l, i);
        if ((rc = copy_part(l, fd, r, sizeof *r)))
            return rc;
        if (r->size < 4096 || (r->size & (r->size - 1)) ||
            r->size > (i < l->nrings - l->nlarge ? l->ring_stride : l->large_stride) -
                          sizeof(struct ring))
            return -EBADMSG;
        uint64_t used = ring_used(r) < r->size ? ring_used(r) : r->size;
        uint64_t at = r->tail & (r->size - 1), first = r->size - at < used ? r->size - at : used;
        if (!(rc = copy_part(l, fd, r->data + at, first)))
            rc = copy_part(l, fd, r->data, used - first);
    }
    return rc;
}

/* Reads the first n bytes of an open live file into memory of `size` bytes, and checks its head. */
static int copy(struct live **out, int fd, const struct stat *st, size_t n, size_t size) {
    struct live *l = sys_pages(size);
    int rc = l ? copy_part(l, fd, l, n) : -ENOMEM;

    if (!rc)
        rc = check_head(l, (uint64_t)st->st_size, st->st_uid);
    if (rc)
        sys_pages_free(l, size);
    else
        *out = l;
    return rc;
}

int live_load(struct live **out, int fd) {
    struct stat st;
    int rc = fstat(fd, &st) < 0 ? -errno : 0;

    if (!rc && (!S_ISREG(st.st_mode) || (st.st_mode & 077) || st.st_uid != geteuid()))
        rc = -EPERM;
    if (!rc && (size_t)st.st_size < sizeof(struct live))
        rc = -EBADMSG;
    if (!rc)
        rc = copy(out, fd, &st, sizeof(struct live), (size_t)st.st_size);
    if (!rc && (rc = copy_rings(*out, fd))) {
        live_free(*out);
        *out = NULL;
    }
    return rc;
}

int live_open(struct live **out, const char *path, int writable) {
    struct live *head = NULL;
    struct stat st;
    int rc = 0;
    AUTO_CLOSE int fd =
        open(path, (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == EACCES ? -EPERM : -errno;
    if (fstat(fd, &st) < 0)
        rc = -errno;
    else if (!S_ISREG(st.st_mode) || (st.st_mode & 077) ||
             (st.st_uid != geteuid() && st.st_uid != 0 && geteuid() != 0))
        rc = -EPERM;
    else if ((size_t)st.st_size < sizeof(struct live))
        rc = -EBADMSG;
    else
        rc = copy(&head, fd, &st, offsetof(struct live, mail), sizeof *head);
    if (!rc && writable) { /* the mapping replaces the copy */
        void *map = mmap(head, sizeof *head, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
        rc = map == MAP_FAILED ? -errno : 0;
        if (rc)
            live_close(head);
    }
    if (!rc)
        *out = head;
    return rc;
}

void live_close(struct live *l) {
    sys_pages_free(l, sizeof *l);
}

void live_free(struct live *l) {
    if (l)
        munmap(l, l->file_size);
}

void live_leave(struct live *l) {
    static const char zeros[PAGE];
    size_t size = l->file_size;
    char *copy = sys_pages(size);

    if (!copy)
        return; /* without memory the mapping stays */
    for (size_t at = 0, n; at < size; at += n) {
        n = size - at < PAGE ? size - at : PAGE;
        if (memcmp((char *)l + at, zeros, n) != 0) /* most of it was never written */
            memcpy(copy + at, (char *)l + at, n);
    }
    /* mremap() replaces the mapping in one step, so the memory is never unmapped in between. */
    if (mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, l) == MAP_FAILED)
        munmap(copy, size);
}

int live_process_alive(const struct live *l) {
    char state;
    uint64_t ticks, ns = proc_namespace(0, "pid");
    AUTO_FREE pid_t *tids = NULL;

    if (!proc_is_boot(l->boot_id))
        return 0;
    if (l->pid_ns && ns && l->pid_ns != ns)
        return 1;
    if (proc_began_as((pid_t)l->pid, &ticks, &state) < 0 || ticks != l->start_ticks)
        return 0;
    if (!proc_is_over(state))
        return 1;
    /* a zombie leader whose other threads still run is alive */
    return proc_tids((pid_t)l->pid, &tids) > 1;
}

const char *live_problem(const struct live *l, char *buf, size_t n) {
    int error = __atomic_load_n(&l->write_error, __ATOMIC_RELAXED);
    buf[0] = 0;
    if (error)
        snprintf(buf, n, "the trace cannot be written: %s; nothing is recorded any more",
                 strerrordesc_np(error));
    else if (__atomic_load_n(&l->state, __ATOMIC_ACQUIRE) != LIVE_RUNNING || !l->trace_path[0])
        return buf;
    else if (!__atomic_load_n(&l->period_ns, __ATOMIC_RELAXED))
        snprintf(buf, n, "sampling is off (sample_rate 0)");
    else if (!__atomic_load_n(&l->threads, __ATOMIC_RELAXED) &&
             sys_now() > l->start_mono + 1000 * SYS_MS)
        snprintf(buf, n, "no Python thread is being sampled");
    return buf;
}

/* ---- rings ---- */

static struct ring *get(struct live *l, unsigned from, unsigned end, uint32_t tid) {
    for (unsigned i = from; i < end; i++) {
        struct ring *r = live_ring(l, i);
        uint32_t state = __atomic_load_n(&r->state, __ATOMIC_ACQUIRE);
        if ((state == RING_FREE || (state == RING_LEFT && ring_used(r) < r->size / 2)) &&
            sys_swap(&r->state, state, RING_OWNED) == state) {
            __atomic_store_n(&r->owner, tid, __ATOMIC_RELAXED);
            return r;
        }
    }
    return NULL;
}

struct ring *live_ring_get(struct live *l, uint32_t tid) {
    return get(l, 0, l->nrings - l->nlarge, tid);
}

struct ring *live_ring_get_large(struct live *l, uint32_t tid) {
    struct ring *r = get(l, l->nrings - l->nlarge, l->nrings, tid);
    uintptr_t page = (uintptr_t)r & ~4095ul;

    if (r && !madvise((void *)page, (uintptr_t)(r->data + r->size) - page, MADV_POPULATE_WRITE))
        return r;
    if (r)
        live_ring_leave(r); /* it may have records that are not drained yet */
    return live_ring_get(l, tid);
}

void live_ring_orphan(struct ring *r) {
    __atomic_store_n(&r->state, RING_ORPHAN, __ATOMIC_RELEASE);
}

void live_ring_leave(struct ring *r) {
    __atomic_store_n(&r->state, RING_LEFT, __ATOMIC_RELEASE);
}

/* ---- a live file that its owner may cut short while we have it mapped ---- */

#define WATCHED 8
static struct live *watched[WATCHED]; /* (a) */
static struct sigaction before;       /* the previous handler, valid while any file is watched */
static unsigned nwatched;

/* Replaces the whole mapping by zeros, which say that the process is gone. A fault elsewhere is left to the previous handler. */
static void on_bus(int sig, siginfo_t *info, void *context UNUSED) {
    uintptr_t at = (uintptr_t)info->si_addr;
    int saved = errno;

    for (unsigned i = 0; i < WATCHED; i++) {
        struct live *l = __atomic_load_n(&watched[i], __ATOMIC_ACQUIRE);
        if (l && at - (uintptr_t)l < sizeof *l &&
            mmap(l, sizeof *l, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                 0) != MAP_FAILED) {
            errno = saved;
            return;
        }
    }
    sigaction(sig, &before, NULL); /* the fault is repeated, for the previous handler */
}

int live_watch(struct live *l) {
    struct sigaction sa = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_NODEFER};

    for (unsigned i = 0; i < WATCHED; i++) {
        if (watched[i])
            continue;
        if (nwatched++ == 0)
            sigaction(SIGBUS, &sa, &before);
        __atomic_store_n(&watched[i], l, __ATOMIC_RELEASE);
        return 0;
    }
    return -EMFILE;
}

void live_unwatch(struct live *l) {
    for (unsigned i = 0; l && i < WATCHED; i++) {
        if (watched[i] != l)
            continue;
        __atomic_store_n(&watched[i], NULL, __ATOMIC_RELEASE);
        if (--nwatched == 0)
            sigaction(SIGBUS, &before, NULL);
    }
}
