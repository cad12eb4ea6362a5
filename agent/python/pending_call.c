/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/pending_call.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/python/capi.h"
#include "agent/python/gil.h"

#define WORKS 8

static uint32_t on_its_way;        /* (a) a pending call has been queued */
static void (*works[WORKS])(void); /* (a) what it is to run */

static int run_works(void *unused) {
    void *type, *value, *traceback;
    (void)unused;
    __atomic_store_n(&on_its_way, 0, __ATOMIC_RELEASE);
    py.PyErr_Fetch(&type, &value, &traceback);
    for (unsigned i = 0; i < WORKS; i++) {
        void (*work)(void) = __atomic_exchange_n(&works[i], NULL, __ATOMIC_ACQ_REL);
        if (!work)
            continue;
        work();
        if (py.PyErr_Occurred())
            py.PyErr_Clear();
    }
    py.PyErr_Restore(type, value, traceback);
    return 0;
}

static void run_works_here(void *unused) {
    run_works(unused);
}

int pending_call_ask(void (*work)(void)) {
    unsigned free_one = WORKS;
    int rc;
    if (!capi_usable()) /* without an interpreter Py_AddPendingCall() would follow a null pointer */
        return -EAGAIN;
    for (unsigned i = 0; i < WORKS; i++) {
        void *w = (void *)(uintptr_t)__atomic_load_n(&works[i], __ATOMIC_ACQUIRE);
        if (w == (void *)(uintptr_t)work)
            free_one = i;
        else if (!w && free_one == WORKS)
            free_one = i;
    }
    if (free_one == WORKS)
        return -ENOSPC;
    __atomic_store_n(&works[free_one], work, __ATOMIC_RELEASE);
    if (__atomic_exchange_n(&on_its_way, 1, __ATOMIC_ACQ_REL))
        return 0;
    /* At its end 3.8 prints an error from here, which takes the GIL that we do not have. */
    if (py.version >> 16 == 0x0308)
        rc = gil_ask(run_works_here, NULL, NULL);
    else
        rc = py.Py_AddPendingCall(run_works, NULL);
    if (rc)
        __atomic_store_n(&on_its_way, 0, __ATOMIC_RELEASE);
    return rc ? -EAGAIN : 0;
}
