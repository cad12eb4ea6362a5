/* SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "../traces/hash.h"
#include "../traces/own_file.h"
#include "../traces/run.h"

#define TAIL    4096
#define NUMBERS 1024        /* slots in the table of numbers */
#define STALE   (24 * 3600) /* seconds after which an unfinished database counts as abandoned */

static uint64_t mix(uint64_t h, const void *p, size_t n) {
    return hash_spread(hash_bytes(h, p, n));
}

/* Returns whether the directory belongs to this user and nobody else may write to it. */
static int is_private(const char *dir) {
    struct stat st;

    return lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
           !(st.st_mode & 022);
}

/* Creates the folder and the missing ones above it. */
static int make_dir(char *dir) {
    for (char *p = dir + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        int err = own_dir_make(dir, 0700);
        *p = '/';
        if (err && err != -EACCES && err != -EROFS)
            return err;
    }
    int err = own_dir_make(dir, 0700);
    return err ? err : is_private(dir) ? 0 : -EPERM;
}

static int find_dir(char *dir, size_t size) {
    const char *own = getenv("PROBING_CACHE_DIR"), *base = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    int n;

    if (own)
        n = snprintf(dir, size, "%s", own);
    else if (base && *base == '/')
        n = snprintf(dir, size, "%s/probing/traces", base);
    else
        n = snprintf(dir, size, "%s/.cache/probing/traces", home ? home : "");
    if (n >= (int)size || *dir != '/' || (!own && !base && (!home || *home != '/')))
        return -ENOENT;
    return make_dir(dir);
}

/* Mixes one trace's names into *which and its present state (size, time, last bytes) into *state. Returns 0 or -errno. */
static int add_input(const char *path, uint64_t *which, uint64_t *state, uint64_t *bytes) {
    char real[PATH_MAX], tail[TAIL];
    struct stat st;
    int fd; /* never a FIFO's: opening and closing it here would end its writer */

    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return -EINVAL;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || !realpath(path, real)) {
        close(fd);
        return -EINVAL;
    }
    ssize_t n = pread(fd, tail, sizeof tail, st.st_size > TAIL ? st.st_size - TAIL : 0);
    close(fd);
    if (n < 0)
        return -EIO;
    /* the change time too: a copier that keeps times (cp -p, rsync -t --inplace) sets the modification time back */
    const uint64_t facts[] = {st.st_dev,
                              st.st_ino,
                              (uint64_t)st.st_size,
                              (uint64_t)st.st_mtim.tv_sec,
                              (uint64_t)st.st_mtim.tv_nsec,
                              (uint64_t)st.st_ctim.tv_sec,
                              (uint64_t)st.st_ctim.tv_nsec};
    *which = mix(*which, real, strlen(real) + 1);
    *which = mix(*which, path, strlen(path) + 1); /* the path as given, too: answers show it */
    *state = mix(*state, facts, sizeof facts);
    *state = mix(*state, tail, (size_t)n);
    *bytes += (uint64_t)st.st_size;
    return 0;
}

/* Returns the number of bytes that the folder may hold. */
static uint64_t limit(const char *dir) {
    struct statvfs v;
    uint64_t most = CACHE_MAX;

    if (statvfs(dir, &v) == 0 && v.f_bavail * v.f_frsize / 4 < most)
        most = v.f_bavail * v.f_frsize / 4;
    return most;
}

/* Mixes the identity of this program's file into the hash: another build may write other tables. */
static uint64_t mix_program(uint64_t h, const struct stat *self) {
    const uint64_t facts[] = {self->st_dev, self->st_ino, (uint64_t)self->st_size,
                              (uint64_t)self->st_mtim.tv_sec, (uint64_t)self->st_mtim.tv_nsec};

    return mix(h, facts, sizeof facts);
}

static int make_name(struct cache_name *name, uint64_t which, uint64_t state) {
    snprintf(name->traces, sizeof name->traces, "%016llx-", (unsigned long long)which);
    int n = snprintf(name->path, sizeof name->path, "%s/%s%016llx.db", name->dir, name->traces,
                     (unsigned long long)state);
    return n < (int)sizeof name->path ? 0 : -ENAMETOOLONG;
}

int cache_find(const struct inputs *in, int whole, const void *how, size_t size,
               struct cache_name *name) {
    uint64_t which = HASH_START, state = 0x84222325cbf29ce4u, bytes = 0;
    struct stat self;
    int err = find_dir(name->dir, sizeof name->dir);

    if (!err && stat("/proc/self/exe", &self) != 0)
        err = -errno;
    for (size_t i = 0; !err && i < in->n; i++)
        err = strcmp(in->file[i].path, "-") == 0
                  ? -EINVAL
                  : add_input(in->file[i].path, &which, &state, &bytes);
    if (!err && whole && bytes * CACHE_GROWTH > limit(name->dir))
        err = -EFBIG;
    if (err)
        return err;
    which = mix(which, how, size);
    return make_name(name, which, mix_program(state, &self));
}

/* A slot of the table of numbers. A slot that is half written, or holds another text's number, fails its check. */
struct number {
    uint64_t text, value, check;
};

uint64_t cache_number(const char *text, uint64_t (*find)(const char *text)) {
    char path[4200];
    struct number is, want = {.text = 0x6b8b4567327b23c6u};
    struct stat self, st;
    int fd = -1;

    if (find_dir(path, 4096) == 0 && stat("/proc/self/exe", &self) == 0) {
        strcat(path, "/numbers");
        fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    }
    if (fd < 0)
        return find(text);
    /* the number depends on SQLite's plan of the text, and SQLite may change while this program stays the same */
    want.text = hash_text(mix_program(want.text, &self), sqlite3_sourceid());
    want.text = mix(want.text, text, strlen(text));
    uint64_t again = mix(HASH_START, text, strlen(text));
    off_t at = (off_t)(want.text % NUMBERS * sizeof want);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077) {
        want.value = find(text);
    } else if (pread(fd, &is, sizeof is, at) == sizeof is && is.text == want.text &&
               is.check == mix(again, &is.value, sizeof is.value)) {
        want.value = is.value;
    } else {
        want.value = find(text);
        want.check = mix(again, &want.value, sizeof want.value);
        ssize_t n = pwrite(fd, &want, sizeof want, at); /* disk full: computed again next time */
        (void)n;
    }
    close(fd);
    return want.value;
}

int cache_live(char *const *paths, int n, uint64_t need, struct cache_name *name) {
    uint64_t which = 0x6c62272e07bb0142u, bytes = 0;
    char real[PATH_MAX], of[RUN_ID], *last;
    struct stat self;
    int err = find_dir(name->dir, sizeof name->dir);

    if (!err && stat("/proc/self/exe", &self) != 0)
        err = -errno;
    for (int i = 0; !err && i < n; i++) {
        uint64_t size = 0;
        err = strcmp(paths[i], "-") == 0 || !realpath(paths[i], real)
                  ? -EINVAL
                  : run_recording(paths[i], of, &size);
        if (err)
            break;
        if ((last = strrchr(of, '/'))) /* the time after the process differs for each segment */
            *last = 0;
        which = mix(which, real, strlen(real) + 1);
        which = mix(which, paths[i], strlen(paths[i]) + 1);
        which = mix(which, of, strlen(of) + 1);
        bytes += size;
    }
    if (!err && bytes * CACHE_GROWTH > limit(name->dir))
        err = -EFBIG;
    if (need)
        which = mix(which, &need, sizeof need);
    return err ? err : make_name(name, which, mix_program(0, &self));
}

int cache_fresh(const struct cache_name *name) {
    char journal[sizeof name->path + 16];
    struct timespec now;
    struct stat st;

    snprintf(journal, sizeof journal, "%s-journal", name->path);
    if (lstat(name->path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        st.st_mode & 077 || !is_private(name->dir) || access(journal, F_OK) == 0)
        return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t ms = (int64_t)(now.tv_sec - st.st_mtim.tv_sec) * 1000 +
                 (now.tv_nsec - st.st_mtim.tv_nsec) / 1000000;
    return ms >= 0 && ms < CACHE_FRESH;
}

void cache_asked(const struct cache_name *name, const struct timespec *when) {
    const struct timespec times[] = {*when, *when};

    utimensat(AT_FDCWD, name->path, times, AT_SYMLINK_NOFOLLOW);
}

int cache_take(const struct cache_name *name) {
    struct stat st;

    if (lstat(name->path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        st.st_mode & 077 || !is_private(name->dir))
        return 0;
    utimensat(AT_FDCWD, name->path, NULL, AT_SYMLINK_NOFOLLOW);
    return 1;
}

struct kept {
    char name[64];
    struct timespec used;
    uint64_t bytes;
};

static int oldest_first(const void *a, const void *b) {
    const struct kept *x = a, *y = b;

    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

/* Returns whether the cache made a file of this name: two hexadecimal numbers, then .db or .sym (symbols_kept.h), then .tmp-... while it is unfinished. */
static int is_ours(const char *name, int *unfinished) {
    if (strspn(name, "0123456789abcdef") != 16 || name[16] != '-' ||
        strspn(name + 17, "0123456789abcdef") != 16)
        return 0;
    const char *end = name + 33;
    end += strncmp(end, ".db", 3) == 0 ? 3 : strncmp(end, ".sym", 4) == 0 ? 4 : 0;
    *unfinished = *end != '\0';
    return end > name + 33 && (!*end || strncmp(end, ".tmp-", 5) == 0);
}

void cache_kept(const struct cache_name *name) {
    struct kept *all = NULL;
    size_t n = 0, cap = 0;
    uint64_t sum = 0, most = limit(name->dir);
    const char *mine = strrchr(name->path, '/') + 1;
    DIR *dir = opendir(name->dir);
    struct dirent *e;

    while (dir && (e = readdir(dir))) {
        struct stat st;
        int unfinished = 0;
        if (!is_ours(e->d_name, &unfinished) || strlen(e->d_name) >= sizeof all->name ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        int is_mine = strcmp(e->d_name, mine) == 0;
        if (unfinished || (is_mine ? (uint64_t)st.st_size > most
                                   : strncmp(e->d_name, name->traces, strlen(name->traces)) == 0)) {
            if (!unfinished || st.st_mtim.tv_sec + STALE < time(NULL))
                unlinkat(dirfd(dir), e->d_name, 0);
            continue;
        }
        if (n == cap) {
            struct kept *more = realloc(all, (cap = cap * 2 + 64) * sizeof *all);
            if (!more)
                break;
            all = more;
        }
        strcpy(all[n].name, e->d_name);
        all[n].used = st.st_mtim;
        all[n].bytes = (uint64_t)st.st_size;
        sum += all[n++].bytes;
    }
    if (n)
        qsort(all, n, sizeof *all, oldest_first);
    for (size_t i = 0; i < n && sum > most; i++) {
        if (strcmp(all[i].name, mine) == 0)
            continue;
        unlinkat(dirfd(dir), all[i].name, 0);
        sum -= all[i].bytes;
    }
    free(all);
    if (dir)
        closedir(dir);
}
