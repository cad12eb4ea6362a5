/* SPDX-License-Identifier: Apache-2.0 */
#include "arrow_pool.h"

#include <pthread.h>
#include <stdlib.h>

#define SMALLEST 6 /* 2^6 bytes */
#define SIZES    40

/* Header in front of each buffer. The buffer is 64-byte aligned, as Arrow recommends. */
struct head {
    struct arrow_pool *pool;
    struct head *next; /* next idle buffer of the same size */
    unsigned size;     /* 2^size bytes */
    _Alignas(64) char buffer[];
};

struct arrow_pool {
    pthread_mutex_t lock;
    struct head *idle[SIZES];
    size_t idle_bytes;
    size_t users; /* number of buffers in use, plus 1 for the owner */
    int closed;
};

struct arrow_pool *arrow_pool_new(void) {
    struct arrow_pool *p = calloc(1, sizeof *p);

    if (p) {
        pthread_mutex_init(&p->lock, NULL);
        p->users = 1;
    }
    return p;
}

static void empty(struct arrow_pool *p) {
    for (unsigned i = 0; i < SIZES; i++)
        for (struct head *h = p->idle[i], *next; h; h = next) {
            next = h->next;
            free(h);
        }
}

static void leave(struct arrow_pool *p) { /* call with the lock held */
    int last = --p->users == 0;

    pthread_mutex_unlock(&p->lock);
    if (last) {
        pthread_mutex_destroy(&p->lock);
        free(p);
    }
}

void arrow_pool_free(struct arrow_pool *p) {
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->closed = 1;
    empty(p);
    leave(p);
}

void *arrow_pool_take(struct arrow_pool *p, size_t n, size_t *cap) {
    unsigned size = SMALLEST;

    while (size < SIZES && (size_t)1 << size < n)
        size++;
    if (size == SIZES)
        return NULL;
    *cap = (size_t)1 << size;
    pthread_mutex_lock(&p->lock);
    struct head *h = p->idle[size];
    if (h) {
        p->idle[size] = h->next;
        p->idle_bytes -= *cap;
    }
    p->users++;
    pthread_mutex_unlock(&p->lock);
    if (!h && (h = aligned_alloc(64, sizeof *h + *cap)) != NULL) {
        h->pool = p;
        h->size = size;
    }
    if (h)
        return h->buffer;
    pthread_mutex_lock(&p->lock);
    leave(p);
    return NULL;
}

void arrow_pool_give(void *buffer) {
    if (!buffer)
        return;
    struct head *h = (struct head *)(void *)((char *)buffer - offsetof(struct head, buffer));
    struct arrow_pool *p = h->pool;
    size_t n = (size_t)1 << h->size;

    pthread_mutex_lock(&p->lock);
    if (p->closed || p->idle_bytes + n > ARROW_POOL_IDLE) {
        free(h);
    } else {
        h->next = p->idle[h->size];
        p->idle[h->size] = h;
        p->idle_bytes += n;
    }
    leave(p);
}
