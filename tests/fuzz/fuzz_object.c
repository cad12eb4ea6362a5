/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_object ITERATIONS SEED FILE...: the object renderer on damaged memory. Each FILE is what `object_dump --record` has read
 * of a real process; it is replayed with random bits flipped, words swapped for other addresses, small numbers made huge,
 * and pieces missing. It must not crash (build it with sanitizers), must end after no more reads than its limits allow, must
 * stay within its buffer, and must write UTF-8 without control characters whatever it reads. Addresses of the file are
 * rendered; without any, the frames' locals. Prints what came out.
 */
#include "agent/pywalk/object.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_READS 300000 /* an iteration's */

struct piece {
    uint64_t addr, len;
    uint8_t *bytes;
};

static struct piece *pieces;
static size_t n_pieces, room;
static struct pywalk_target target;
static uint64_t *addrs, n_addrs;
static uint64_t rng, reads;
static unsigned damage; /* one read in so many is damaged; 0: none */
static long whole, corrupt, unreadable, cut, locals;

static uint64_t rnd(void) {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng;
}

static int by_address(const void *a, const void *b) {
    const struct piece *p = a, *q = b;
    return p->addr < q->addr ? -1 : p->addr > q->addr;
}

static int load(const char *path) {
    FILE *f = fopen(path, "rb");
    uint64_t head[2];
    size_t kept = 0;

    if (f == NULL || fread(&target, sizeof target, 1, f) != 1 ||
        fread(&n_addrs, sizeof n_addrs, 1, f) != 1 || n_addrs > 1 << 20)
        return -1;
    addrs = calloc(n_addrs + 1, sizeof *addrs);
    if (addrs == NULL || fread(addrs, sizeof *addrs, n_addrs, f) != n_addrs)
        return -1;
    n_pieces = 0;
    while (fread(head, sizeof head, 1, f) == 1) {
        if (n_pieces == room) {
            room = room * 2 + 1024;
            struct piece *more = realloc(pieces, room * sizeof *pieces);
            if (more == NULL)
                abort();
            pieces = more;
        }
        struct piece *p = &pieces[n_pieces++];
        *p = (struct piece){head[0], head[1], malloc(head[1] + 1)};
        if (p->bytes == NULL || fread(p->bytes, 1, p->len, f) != p->len)
            return -1;
    }
    fclose(f);
    /* Joins pieces of adjacent memory into one, so that reading works at any place in it. */
    qsort(pieces, n_pieces, sizeof *pieces, by_address);
    for (size_t i = 0; i < n_pieces; i++) {
        struct piece *p = &pieces[i], *last = kept > 0 ? &pieces[kept - 1] : NULL;
        if (last == NULL || p->addr > last->addr + last->len) {
            pieces[kept++] = *p;
            continue;
        }
        uint64_t end = p->addr + p->len, have = last->addr + last->len;
        if (end > have) {
            last->bytes = realloc(last->bytes, end - last->addr + 1);
            memcpy(last->bytes + (have - last->addr), p->bytes + (have - p->addr), end - have);
            last->len = end - last->addr;
        }
        free(p->bytes);
    }
    n_pieces = kept;
    return 0;
}

/* Replaces a word by an address that exists, an address near it, or a number of any size, or flips bits of it. */
static void spoil(uint8_t *buf, size_t n) {
    uint64_t word = pieces[rnd() % n_pieces].addr;

    switch (n >= 8 ? rnd() % 4 : 3) {
    case 0:
        break;
    case 1:
        word += rnd() % 256;
        break;
    case 2:
        word = rnd() >> rnd() % 64;
        break;
    default:
        for (unsigned i = 1 + rnd() % 4; i > 0; i--)
            buf[rnd() % n] ^= (uint8_t)(1u << rnd() % 8);
        return;
    }
    memcpy(buf + rnd() % (n / 8) * 8, &word, 8);
}

static int replay(void *ctx, uint64_t addr, void *buf, size_t n) {
    size_t low = 0, high = n_pieces;

    (void)ctx;
    if (++reads > MAX_READS) {
        fprintf(stderr, "fuzz_object: %d reads and no end\n", MAX_READS);
        abort();
    }
    if (damage != 0 && rnd() % (damage * 8) == 0)
        return -EFAULT;
    while (low < high) {
        size_t at = (low + high) / 2;
        if (pieces[at].addr <= addr)
            low = at + 1;
        else
            high = at;
    }
    if (low == 0 || n > pieces[low - 1].len ||
        addr - pieces[low - 1].addr > pieces[low - 1].len - n)
        return -EFAULT;
    memcpy(buf, pieces[low - 1].bytes + (addr - pieces[low - 1].addr), n);
    if (damage != 0 && rnd() % damage == 0)
        spoil(buf, n);
    return 0;
}

static void check_text(const char *s, int n, size_t size) {
    const unsigned char *p = (const unsigned char *)s;

    if (n < 0 || (size_t)n >= size || strlen(s) != (size_t)n)
        abort();
    while (*p != '\0') {
        int more = *p < 0x80                 ? 0
                   : *p >= 0xc2 && *p < 0xe0 ? 1
                   : *p >= 0xe0 && *p < 0xf0 ? 2
                   : *p >= 0xf0 && *p < 0xf5 ? 3
                                             : -1;
        if (*p < 0x20 || *p == 0x7f || more < 0)
            abort();
        if ((*p == 0xed && p[1] >= 0xa0) || (*p == 0xe0 && p[1] < 0xa0) ||
            (*p == 0xc2 && p[1] < 0xa0))
            abort();
        for (p++; more > 0; more--, p++)
            if ((*p & 0xc0) != 0x80)
                abort();
    }
    whole++;
    corrupt += strstr(s, "<corrupt ") != NULL;
    unreadable += strstr(s, "<unreadable ") != NULL;
    cut += n >= 3 && strcmp(s + n - 3, "...") == 0;
}

static void render(const struct pywalk_objects *ob, uint64_t addr) {
    struct pywalk_limits limits = {0};
    size_t size = 16 + rnd() % (rnd() % 2 == 0 ? 64 : 4096);
    char *buf;
    int n;

    if (damage == 0)
        size = 4096;
    else
        limits = (struct pywalk_limits){(uint32_t)(rnd() % 20), (uint32_t)(rnd() % 50),
                                        (uint32_t)(rnd() % 300), (uint32_t)(rnd() % 3000)};
    buf = malloc(size); /* of exactly that size, for the sanitizer */
    if (buf == NULL)
        return;
    reads = 0;
    n = pywalk_repr(ob, addr, &limits, buf, size);
    if (limits.reads != 0 && reads > limits.reads)
        abort();
    check_text(buf, n, size);
    reads = 0;
    n = pywalk_type_name(ob, addr, buf, size);
    if (n >= 0)
        check_text(buf, n, size);
    free(buf);
}

static int one_local(void *ctx, const struct pywalk_local *local) {
    uint64_t before = reads;
    render(ctx, local->object);
    reads = before;
    locals++;
    return 0;
}

static int look(void) {
    static struct pywalk_thread threads[64];
    static struct pywalk_frame frames[300];
    struct pywalk_objects ob;
    struct pywalk pw;
    unsigned was = damage;
    int more, was_cut, n;

    reads = 0;
    damage = 0; /* the walker has a fuzzer of its own */
    if (pywalk_init(&pw, (struct pywalk_mem){replay, NULL}, &target) != 0 ||
        pywalk_objects_init(&ob, &pw) != 0)
        return -1;
    damage = was;
    for (uint64_t i = 0; i < n_addrs; i++)
        render(&ob, addrs[i]);
    if (n_addrs > 0)
        return 0;
    damage = 0;
    n = pywalk_threads(&pw, threads, 64, &more);
    for (int i = 0; i < n; i++) {
        damage = 0;
        int depth = pywalk_frames(&pw, threads[i].tstate, frames, 300, &was_cut);
        damage = was;
        for (int k = 0; k < depth; k++) {
            struct pywalk_frame frame = frames[k];
            if (damage != 0 && rnd() % 16 == 0)
                spoil((uint8_t *)&frame, 16);
            reads = 0;
            pywalk_locals(&ob, &frame, 200, one_local, &ob);
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    long iterations = argc > 3 ? atol(argv[1]) : 0;

    if (iterations <= 0) {
        fprintf(stderr, "usage: fuzz_object ITERATIONS SEED FILE...\n");
        return 2;
    }
    rng = strtoull(argv[2], NULL, 10) * 0x9e3779b97f4a7c15ull | 1;
    for (int a = 3; a < argc; a++) {
        if (load(argv[a]) != 0) {
            fprintf(stderr, "fuzz_object: %s cannot be read\n", argv[a]);
            return 3;
        }
        damage = 0;
        whole = corrupt = unreadable = cut = locals = 0;
        if (look() != 0 || whole == 0) {
            fprintf(stderr, "fuzz_object: %s undamaged tells nothing\n", argv[a]);
            return 1;
        }
        long undamaged = whole;
        whole = corrupt = unreadable = cut = locals = 0;
        for (long i = 0; i < iterations; i++) {
            damage = 2u << rnd() % 10;
            if (look() != 0)
                return 1;
        }
        printf(
            "%s: %ld texts undamaged; damaged %ld texts, with something corrupt %ld, unreadable %ld, cut %ld; "
            "%ld locals\n",
            argv[a], undamaged, whole, corrupt, unreadable, cut, locals);
        for (size_t i = 0; i < n_pieces; i++)
            free(pieces[i].bytes);
        free(addrs);
    }
    free(pieces);
    return 0;
}
