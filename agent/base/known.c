/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/base/known.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

int known_init(struct known *k, uint32_t n) {
    void *p =
        mmap(NULL, n * sizeof *k->keys, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return -ENOMEM;
    k->keys = p;
    k->mask = n - 1;
    return 0;
}

void known_free(struct known *k) {
    if (k->keys)
        munmap(k->keys, (k->mask + 1) * sizeof *k->keys);
    k->keys = NULL;
}

int known_has(const struct known *k, uint64_t key) {
    uint64_t *a = &k->keys[key & k->mask];
    uint64_t *b = &k->keys[(key & k->mask) ^ 1];
    return __atomic_load_n(a, __ATOMIC_ACQUIRE) == key ||
           __atomic_load_n(b, __ATOMIC_ACQUIRE) == key;
}

void known_add(struct known *k, uint64_t key) {
    uint64_t *a = &k->keys[key & k->mask];
    uint64_t *b = &k->keys[(key & k->mask) ^ 1];
    uint64_t old = __atomic_load_n(a, __ATOMIC_RELAXED);
    if (old)
        __atomic_store_n(b, old, __ATOMIC_RELEASE);
    __atomic_store_n(a, key, __ATOMIC_RELEASE);
}
