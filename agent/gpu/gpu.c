/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/gpu/gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/base/loaded.h"
#include "agent/base/values.h"
#include "agent/core/meta.h"
#include "agent/core/producer.h"
#include "agent/core/threads.h"

#define DEVICES    16
#define PROCESSES  128
#define STACK_SIZE (512u << 10)

/* The part of NVML's C interface that is used (its header is stable; device handles are pointers). */
struct utilization {
    unsigned gpu, memory;
};
struct memory_info {
    unsigned long long total, free, used;
};
struct process_info { /* of the functions with _v2 and _v3 */
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
enum { TEMPERATURE_GPU = 0, CLOCK_SM = 1, NVML_NONE = -1 };

static struct nvml {
    int (*Init_v2)(void);
    int (*DeviceGetCount_v2)(unsigned *);
    int (*DeviceGetHandleByIndex_v2)(unsigned, void **);
    int (*DeviceGetUtilizationRates)(void *, struct utilization *);
    int (*DeviceGetMemoryInfo)(void *, struct memory_info *);
    int (*DeviceGetPowerUsage)(void *, unsigned *);
    int (*DeviceGetTemperature)(void *, int, unsigned *);
    int (*DeviceGetClockInfo)(void *, int, unsigned *);
    int (*DeviceGetUUID)(void *, char *, unsigned);
    int (*DeviceGetName)(void *, char *, unsigned);
    int (*DeviceGetComputeRunningProcesses)(void *, unsigned *, struct process_info *);
} nvml;

enum state { IDLE, STARTING, RUNS, ENDING, ABSENT, REFUSED, NO_THREAD };
static uint32_t state;  /* (a) enum state; REFUSED: `error` says NVML's number */
static uint32_t wanted; /* (a) futex: counts measurements asked for */
static int error;
static uint32_t owner,
    noted; /* service thread: pid whose thread it is; generation that has the note */

/* 0; -ENOENT: not there. */
static int load(void) {
    static const struct {
        const char *name;
        void *to;
        int needed;
    } names[] = {
        {"nvmlInit_v2", &nvml.Init_v2, 1},
        {"nvmlDeviceGetCount_v2", &nvml.DeviceGetCount_v2, 1},
        {"nvmlDeviceGetHandleByIndex_v2", &nvml.DeviceGetHandleByIndex_v2, 1},
        {"nvmlDeviceGetUtilizationRates", &nvml.DeviceGetUtilizationRates, 0},
        {"nvmlDeviceGetMemoryInfo", &nvml.DeviceGetMemoryInfo, 0},
        {"nvmlDeviceGetPowerUsage", &nvml.DeviceGetPowerUsage, 0},
        {"nvmlDeviceGetTemperature", &nvml.DeviceGetTemperature, 0},
        {"nvmlDeviceGetClockInfo", &nvml.DeviceGetClockInfo, 0},
        {"nvmlDeviceGetUUID", &nvml.DeviceGetUUID, 0},
        {"nvmlDeviceGetName", &nvml.DeviceGetName, 0},
        {"nvmlDeviceGetComputeRunningProcesses_v3", &nvml.DeviceGetComputeRunningProcesses, 0},
    };
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!lib)
        return -ENOENT;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *p = dlsym(lib, names[i].name);
        if (!p && i + 1 == sizeof names / sizeof *names)
            p = dlsym(lib, "nvmlDeviceGetComputeRunningProcesses_v2");
        if (!p && names[i].needed)
            return -ENOENT;
        memcpy(names[i].to, &p, sizeof p);
    }
    return 0;
}

static int64_t process_memory(void *device) {
    static struct process_info list[PROCESSES];
    unsigned n = PROCESSES;
    int64_t sum = 0;
    if (!nvml.DeviceGetComputeRunningProcesses ||
        nvml.DeviceGetComputeRunningProcesses(device, &n, list))
        return NVML_NONE;
    for (unsigned i = 0; i < n && i < PROCESSES; i++)
        if (list[i].pid == (unsigned)getpid() && list[i].used != ULLONG_MAX)
            sum += (int64_t)list[i].used;
    return sum;
}

static void measure(unsigned index) {
    struct utilization util;
    struct memory_info memory;
    unsigned power, temperature, clock;
    char uuid[96] = "", name[96] = "";
    void *d = NULL;
    int64_t v[TRACE_gpu_NFIELDS];
    size_t used = 0;
    if (nvml.DeviceGetHandleByIndex_v2(index, &d))
        return;
    memset(v, 0xff, sizeof v);
    if (nvml.DeviceGetUtilizationRates && !nvml.DeviceGetUtilizationRates(d, &util)) {
        v[TRACE_gpu_util] = util.gpu;
        v[TRACE_gpu_memory_util] = util.memory;
    }
    if (nvml.DeviceGetMemoryInfo && !nvml.DeviceGetMemoryInfo(d, &memory)) {
        v[TRACE_gpu_memory_used] = (int64_t)memory.used;
        v[TRACE_gpu_memory_total] = (int64_t)memory.total;
    }
    if (nvml.DeviceGetPowerUsage && !nvml.DeviceGetPowerUsage(d, &power))
        v[TRACE_gpu_power_mw] = power;
    if (nvml.DeviceGetTemperature && !nvml.DeviceGetTemperature(d, TEMPERATURE_GPU, &temperature))
        v[TRACE_gpu_temperature] = temperature;
    if (nvml.DeviceGetClockInfo && !nvml.DeviceGetClockInfo(d, CLOCK_SM, &clock))
        v[TRACE_gpu_sm_clock] = clock;
    if (!nvml.DeviceGetUUID || nvml.DeviceGetUUID(d, uuid, sizeof uuid))
        uuid[0] = 0;
    if (!nvml.DeviceGetName || nvml.DeviceGetName(d, name, sizeof name))
        name[0] = 0;
    v[TRACE_gpu_process_memory] = process_memory(d);
    uuid[sizeof uuid - 1] = name[sizeof name - 1] = 0;

    uint64_t now = values_now(), *f = NULL;
    struct producer *p = producer_enter();
    if (!p)
        return;
    f = ring_reserve(p->ring, TRACE_gpu, TRACE_gpu_NFIELDS, sizeof uuid + sizeof name);
    if (f) {
        memcpy(f, v, sizeof v);
        f[TRACE_gpu_ts] = now;
        f[TRACE_gpu_device] = index;
        ring_put_bytes(f, TRACE_gpu_NFIELDS, TRACE_gpu_uuid, uuid, strlen(uuid), &used);
        ring_put_bytes(f, TRACE_gpu_NFIELDS, TRACE_gpu_name, name, strlen(name), &used);
        ring_commit(f);
    }
    producer_leave(p);
}

static void *run(void *unused) {
    unsigned n = 0, done = 0;
    (void)unused;
    syscall(SYS_close_range, 0u, UINT_MAX, CLOSE_RANGE_UNSHARE);
    if (load()) {
        __atomic_store_n(&state, ABSENT, __ATOMIC_RELEASE);
        return NULL;
    }
    error = nvml.Init_v2();
    if (!error)
        error = nvml.DeviceGetCount_v2(&n);
    if (error) {
        __atomic_store_n(&state, REFUSED, __ATOMIC_RELEASE);
        return NULL;
    }
    __atomic_store_n(&state, RUNS, __ATOMIC_RELEASE);
    for (uint32_t ending = ENDING;
         !__atomic_compare_exchange_n(&state, &ending, IDLE, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
         ending = ENDING) {
        uint32_t asked = __atomic_load_n(&wanted, __ATOMIC_ACQUIRE);
        if (asked == done) {
            syscall(SYS_futex, &wanted, FUTEX_WAIT_PRIVATE, done, NULL, NULL, 0);
            continue;
        }
        done = asked; /* those that were missed meanwhile are missed */
        for (unsigned i = 0; i < n && i < DEVICES; i++)
            measure(i);
    }
    return NULL;
}

static void start(void) {
    __atomic_store_n(&state, STARTING, __ATOMIC_RELEASE);
    if (thread_spawn(NULL, "probing-gpu", STACK_SIZE, run, NULL))
        __atomic_store_n(&state, NO_THREAD, __ATOMIC_RELEASE);
}

static int has_to_do(void) {
    return !loaded_find("libcuda.so", NULL) || !loaded_find("libtorch_cpu.so", NULL) ||
           !loaded_find("libnvidia-ml.so", NULL);
}

static void say(struct writer *w, uint32_t now) {
    if (noted == producer_generation() || now < ABSENT)
        return;
    noted = producer_generation();
    if (now == ABSENT)
        meta_note(w, 0, "gpu", "no GPU metrics: there is no libnvidia-ml.so.1 (NVML)");
    else if (now == REFUSED)
        meta_note(w, 1, "gpu", "no GPU metrics: NVML says error %d", error);
    else if (now == NO_THREAD)
        meta_note(w, 1, "gpu", "no GPU metrics: no thread");
}

static void wake(void) {
    __atomic_fetch_add(&wanted, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &wanted, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void gpu_metrics(struct writer *w) {
    uint32_t now = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
    if (owner != (uint32_t)getpid()) {
        if (owner) /* the thread is the parent's, and NVML's state a copy */
            return;
        owner = (uint32_t)getpid();
    }
    if (now == IDLE && has_to_do())
        start();
    if (now == ENDING &&
        __atomic_compare_exchange_n(&state, &now, RUNS, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        now = RUNS; /* it had not come to its end yet */
    if (now == RUNS)
        wake();
    say(w, now);
}

/* The process may end without us: nothing of ours is to be what is left. */
static void gpu_leave(void) {
    uint32_t runs = RUNS;
    if (owner == (uint32_t)getpid() &&
        __atomic_compare_exchange_n(&state, &runs, ENDING, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        wake();
}

const struct agent_part gpu_part = {
    .name = "gpu",
    .metrics = gpu_metrics,
    .leave = gpu_leave,
};
