/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_pywalk ITERATIONS SEED FILE...: pywalk on damaged memory (threads, frames, lines, asyncio's tasks, the ELF image).
 * ITERATIONS may be "60s": so many seconds for each FILE. Each FILE is what `pywalk_dump --record` has read of a real
 * process; it is replayed with random bits flipped, words swapped for other addresses, and pieces missing. It must
 * not crash (build it with sanitizers), must end after a bounded number of reads, and must tell the truth when nothing is
 * damaged. Prints how often each answer came.
 */
#include "agent/pywalk/find.h"
#include "agent/pywalk/tasks.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_FRAMES 1000
#define MAX_TASKS  200
#define MAX_READS  1500000 /* an iteration; an undamaged one takes some thousands at most */

struct piece {
    uint64_t addr, len;
    uint8_t *bytes;
};

static struct piece *pieces;
static size_t n_pieces;
static struct pywalk_target target;
static uint64_t image; /* where the ELF image begins; 0: not recorded */
static uint64_t longest;
static uint64_t rng, reads;
static unsigned damage; /* one read in so many is damaged; 0: none */

static uint64_t rnd(void) {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng;
}

static int by_address(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int load(const char *path) {
    FILE *f = fopen(path, "rb");
    uint64_t head[2];
    size_t room = 0;

    if (f == NULL || fread(&target, sizeof target, 1, f) != 1 ||
        fread(&image, sizeof image, 1, f) != 1)
        return -1;
    longest = 0;
    n_pieces = 0;
    while (fread(head, sizeof head, 1, f) == 1) {
        if (n_pieces == room) {
            struct piece *more = realloc(pieces, (room * 2 + 1024) * sizeof *pieces);
            if (more == NULL)
                return -1;
            pieces = more;
            room = room * 2 + 1024;
        }
        struct piece *p = &pieces[n_pieces++];
        *p = (struct piece){head[0], head[1], malloc(head[1])};
        if (fread(p->bytes, 1, p->len, f) != p->len)
            return -1;
        if (p->len > longest)
            longest = p->len;
    }
    fclose(f);
    qsort(pieces, n_pieces, sizeof *pieces, by_address);
    return 0;
}

/* Replaces a word by an address that exists or an address near it, or flips bits of it. */
static void spoil(uint8_t *buf, size_t n) {
    uint64_t other = pieces[rnd() % n_pieces].addr, at;

    if (n >= 8 && rnd() % 2 == 0) {
        at = rnd() % (n / 8) * 8;
        if (rnd() % 4 == 0)
            other += rnd() % 4096;
        memcpy(buf + at, &other, 8);
    } else {
        for (unsigned i = 1 + rnd() % 4; i > 0; i--)
            buf[rnd() % n] ^= (uint8_t)(1u << rnd() % 8);
    }
}

static int replay(void *ctx, uint64_t addr, void *buf, size_t n) {
    (void)ctx;
    if (++reads > MAX_READS) {
        fprintf(stderr, "fuzz_pywalk: %d reads and no end\n", MAX_READS);
        abort();
    }
    if (damage != 0 && rnd() % (damage * 8) == 0)
        return -EFAULT;
    /* Looks at the last piece that begins at or before the address, and at those before it that may reach as far. */
    size_t low = 0, high = n_pieces;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pieces[middle].addr <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low > 0 && addr - pieces[low - 1].addr < longest; low--) {
        struct piece *p = &pieces[low - 1];
        if (addr - p->addr > p->len || p->len - (addr - p->addr) < n)
            continue;
        memcpy(buf, p->bytes + (addr - p->addr), n);
        if (damage != 0 && rnd() % damage == 0)
            spoil(buf, n);
        return 0;
    }
    return -EFAULT;
}

static long answers[200]; /* by -errno; 0: good */

static int count(int rc) {
    answers[rc < 0 ? (-rc < 200 ? -rc : 199) : 0]++;
    return rc;
}

static void look_at_tasks(const struct pywalk *pw) {
    static struct pywalk_task tasks[MAX_TASKS];
    static struct pywalk_frame frames[MAX_FRAMES];
    struct pywalk_objects ob;
    int more, n = count(pywalk_objects_init(&ob, pw));

    if (n == 0)
        n = count(pywalk_tasks(&ob, tasks, MAX_TASKS, &more));
    for (int i = 0; i < n; i++) {
        if (memchr(tasks[i].name, 0, sizeof tasks[i].name) == NULL ||
            count(pywalk_task_frames(&ob, &tasks[i], frames, MAX_FRAMES)) > MAX_FRAMES ||
            memchr(tasks[i].waits_on, 0, sizeof tasks[i].waits_on) == NULL)
            abort();
    }
}

static void look_at_image(void) {
    struct pywalk_found found;

    reads = 0;
    if (image != 0)
        count(pywalk_find_image((struct pywalk_mem){replay, NULL}, image, &found));
}

/* Looks at everything once. Returns the number of frames whose line and name could be read. */
static int look(void) {
    static struct pywalk_thread threads[64];
    static struct pywalk_frame frames[MAX_FRAMES];
    static struct pywalk_code code;
    static struct pywalk pw;
    uint64_t word;
    int more, cut, told = 0;

    reads = 0;
    if (count(pywalk_init(&pw, (struct pywalk_mem){replay, NULL}, &target)) != 0)
        return 0;
    pw.keep = target.version >> 8 & 1 ? 2 : 0;
    int n = count(pywalk_threads(&pw, threads, 64, &more));
    for (int i = 0; i < n; i++) {
        int depth = count(pywalk_frames(&pw, threads[i].tstate, frames, MAX_FRAMES, &cut));
        pywalk_gil_holder(&pw, threads[i].interp, &word);
        if (depth > MAX_FRAMES)
            abort();
        for (int k = 0; k < depth && k < 50; k++) {
            if (count(pywalk_code(&pw, frames[k].code, &code)) != 0)
                continue;
            if (memchr(code.name, 0, sizeof code.name) == NULL ||
                memchr(code.file, 0, sizeof code.file) == NULL)
                abort();
            pywalk_code_identity(&pw, frames[k].code, &word);
            struct pywalk_position at;
            told += count(pywalk_frame_line(&pw, &code, frames[k].lasti)) >= 0;
            if (count(pywalk_position(&pw, &code, frames[k].lasti, &at)) == 0 &&
                (at.end_line < at.line || at.column < -1 ||
                 (at.column >= 0 && at.end_line == at.line && at.end_column < at.column)))
                abort();
        }
    }
    if (pw.version >= 0x030b0000)
        look_at_tasks(&pw);
    return told;
}

int main(int argc, char **argv) {
    long iterations = argc > 3 ? atol(argv[1]) : 0, total = 0;
    bool timed = argc > 3 && strchr(argv[1], 's') != NULL;

    if (iterations <= 0) {
        fprintf(stderr, "usage: fuzz_pywalk ITERATIONS SEED FILE...\n");
        return 2;
    }
    rng = strtoull(argv[2], NULL, 10) * 0x9e3779b97f4a7c15ull | 1;
    for (int a = 3; a < argc; a++) {
        if (load(argv[a]) != 0) {
            fprintf(stderr, "fuzz_pywalk: %s cannot be read\n", argv[a]);
            return 3;
        }
        damage = 0;
        int whole = look();
        if (whole == 0) {
            fprintf(stderr, "fuzz_pywalk: %s undamaged tells nothing\n", argv[a]);
            return 1;
        }
        memset(answers, 0, sizeof answers);
        time_t end = time(NULL) + iterations;
        long done = 0;
        for (; timed ? done % 64 != 0 || time(NULL) < end : done < iterations; done++) {
            damage = 2u << rnd() % 10;
            look();
            if (rnd() % 16 == 0)
                look_at_image();
        }
        total += done;
        printf(
            "%s: %d frames; answers good %ld, again %ld, unreadable %ld, inconsistent %ld, not known %ld\n",
            argv[a], whole, answers[0], answers[EAGAIN], answers[EFAULT], answers[EBADMSG],
            answers[ENOTSUP]);
        for (size_t i = 0; i < n_pieces; i++)
            free(pieces[i].bytes);
    }
    free(pieces);
    printf("%ld damaged images looked at\n", total);
    return 0;
}
