/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swapped_states.c - two threads that were not made by Python call a Python function again and again, at the same time. For each call
 * CPython makes a thread state, and frees it afterwards. Between two calls the threads exchange the memory of these states, so that the
 * next state of each thread lies where the last one of the other thread was.
 *
 *     start(function);  // function(0) in one thread, function(1), which begins by calling entered(), in the other
 *     stop();
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#define SIZES                                                                                      \
    64 /* of malloc()'s memory, in steps of 16 bytes: all that a thread keeps for itself, the state's among them */

static pthread_barrier_t both;
static pthread_t threads[2];
static sem_t second_is_in;
static void (*function)(int);
static void *shelf[2][SIZES];
static int stopping; /* (a) */

void entered(void) {
    sem_post(&second_is_in);
}

static void *call(void *which) {
    int me = which != NULL, last = 0;
    while (!last) {
        if (!me)
            sem_wait(
                &second_is_in); /* the state made last is the first of CPython's list: always this thread's */
        function(me);
        for (int i = 0; i < SIZES; i++)
            shelf[me][i] = malloc(16 * (size_t)(i + 1) + 8);
        if (pthread_barrier_wait(&both) == PTHREAD_BARRIER_SERIAL_THREAD)
            last = __atomic_load_n(&stopping, __ATOMIC_RELAXED);
        if (last)
            __atomic_store_n(&stopping, 2, __ATOMIC_RELAXED);
        pthread_barrier_wait(&both);
        last = __atomic_load_n(&stopping, __ATOMIC_RELAXED) == 2;
        for (int i = 0; i < SIZES; i++)
            free(shelf[!me][i]);
        pthread_barrier_wait(&both);
    }
    return NULL;
}

void start(void (*python)(int)) {
    function = python;
    sem_init(&second_is_in, 0, 0);
    pthread_barrier_init(&both, NULL, 2);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, call, i ? &stopping : NULL);
}

void stop(void) {
    __atomic_store_n(&stopping, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}
