/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.h - reads the target's memory and the characters of its str objects. For agent/pywalk, gdbplugin and the rest of the agent.
 *
 * All reads go through the callback of struct pywalk_mem. There are small helpers for words, and one call for many small pieces,
 * which process_vm_readv can read at once.
 */
#ifndef PROBING_PYWALK_MEM_H
#define PROBING_PYWALK_MEM_H

#include "pywalk.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/uio.h>

/* Whether addr can be the address of an aligned object in user space. Keeps a torn pointer, which may have any value,
 * from being followed where no other check would stop it (pywalk_read_direct). */
static inline bool pywalk_plausible(uint64_t addr) {
    return addr >= 0x1000 && addr < (1ull << 47) && (addr & 7) == 0;
}

static inline uint64_t load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t load32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline int mem_read(const struct pywalk *pw, uint64_t addr, void *buf, size_t n) {
    return pw->mem.read(pw->mem.ctx, addr, buf, n);
}

static inline int mem_u64(const struct pywalk *pw, uint64_t addr, uint64_t *v) {
    return mem_read(pw, addr, v, sizeof *v);
}

/* One step of a 64-bit hash. */
static inline uint64_t mem_mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 29;
}

#define PYWALK_PAGE 4096u

/*
 * A cache of pages, for code that follows many pointers: many small reads need few system calls. A cached page keeps the contents that were
 * read until pywalk_pages_forget(). Async-signal-safe if `mem` is; one reader at a time.
 */
struct pywalk_pages {
    struct pywalk_mem mem;
    uint32_t n; /* pages that the cache holds */
    struct pywalk_page {
        uint64_t number; /* page number + 1, 0: empty */
        uint64_t used;   /* it was asked for since it was read */
        uint8_t bytes[PYWALK_PAGE];
    } * page;
};
void pywalk_pages_forget(struct pywalk_pages *p);
/* Allocates a cache of 4 MB of pages by calloc(); release it with free(). NULL: no memory. */
struct pywalk_pages *pywalk_pages_new(struct pywalk_mem mem);
/* A pywalk_read_fn that reads through the cache; ctx is a struct pywalk_pages *. Returns 0 or -EFAULT. */
int pywalk_pages_read(void *ctx, uint64_t addr, void *buf, size_t n);

/* Asks the kernel whether 8 bytes at addr can be read. About 100 ns. */
bool pywalk_mem_probe(uint64_t addr);

/* Reads `count` (at most MEM_MANY) pieces of `n` bytes, one after the other into buf. Returns 0, or -EFAULT: then buf is undefined. */
#define MEM_MANY 16
int pywalk_mem_many(const struct pywalk *pw, const uint64_t *addr, size_t count, void *buf,
                    size_t n);

struct pywalk_chars {
    uint64_t data, length; /* in characters */
    unsigned unit;         /* bytes of each: 1, 2 or 4 */
};
/* Finds the characters of a str. Returns 0, -EBADMSG, -EFAULT; -EAGAIN: a str that is not ready (up to 3.11) and has them elsewhere. */
int pywalk_chars(const struct pywalk *pw, uint64_t obj, struct pywalk_chars *out);
uint32_t pywalk_char(const uint8_t *p, unsigned unit);

/* Writes c as UTF-8; returns its length, at most 4. */
size_t pywalk_utf8(uint32_t c, char *buf);

#endif
