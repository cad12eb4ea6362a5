/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.c - GPU metrics by NVML (libnvidia-ml.so.1, loaded at run time): a `gpu` record for each device at the metrics' interval.
 *
 * Once the process has to do with GPUs (libcuda, libtorch or NVML itself is loaded already), a thread of the agent loads NVML and
 * calls it, because the calls may take long or, with a broken GPU, never return. The thread shares the program's file descriptor table:
 * there is one NVML in a process, with one state, so the program's own calls (pynvml's, PyTorch's) use the files that our calls have
 * opened. If NVML is absent or fails, that is noted once. NVML does not survive fork: the child of a process that has loaded it has no such thread.
 */

#include "agent/base/fork_lock.h"
#include "agent/base/loaded.h"
#include "agent/core/meta.h"
#include "agent/core/part.h"
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
struct memory_info_v2 { /* `used` does not include the driver's reserve, as in nvidia-smi */
    unsigned version;
    unsigned long long total, reserved, free, used;
};
#define MEMORY_V2 (sizeof(struct memory_info_v2) | 2u << 24)
struct process_info { /* of the functions with _v2 and _v3 */
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
enum { TEMPERATURE_GPU = 0, CLOCK_SM = 1 };
#define NVML_NONE ((int64_t)-1)

#define FUNCTIONS(X) /* name, whether it may be missing, parameters */                             \
    X(Init_v2, 0, (void))                                                                          \
    X(DeviceGetCount_v2, 0, (unsigned *))                                                          \
    X(DeviceGetHandleByIndex_v2, 0, (unsigned, void **))                                           \
    X(DeviceGetUtilizationRates, 1, (void *, struct utilization *))                                \
    X(DeviceGetMemoryInfo, 1, (void *, struct memory_info *))                                      \
    X(DeviceGetMemoryInfo_v2, 1, (void *, struct memory_info_v2 *))                                \
    X(DeviceGetPowerUsage, 1, (void *, unsigned *))                                                \
    X(DeviceGetTemperature, 1, (void *, int, unsigned *))                                          \
    X(DeviceGetClockInfo, 1, (void *, int, unsigned *))                                            \
    X(DeviceGetUUID, 1, (void *, char *, unsigned))                                                \
    X(DeviceGetName, 1, (void *, char *, unsigned))
#define POINTER(name, optional, parameters) int(*name) parameters;
#define NAMED(name, optional, parameters)   {"nvml" #name, NULL, &nvml.name, optional},

static struct nvml {
    FUNCTIONS(POINTER)
    int (*DeviceGetComputeRunningProcesses)(void *, unsigned *, struct process_info *);
} nvml;

enum state { IDLE, STARTING, RUNS, ENDING, FORKED, ABSENT, REFUSED, NO_THREAD };
static struct {
    uint32_t state;  /* (a) enum state; REFUSED: `error` is NVML's error */
    uint32_t wanted; /* (a) futex: counts measurements asked for */
    uint32_t noted;  /* recording that has the note; service thread only */
    int error;
} g;

/* Loads NVML. Returns 0; -ENOENT when it is not there. */
static int load(void) {
    static const struct loaded_function names[] = {{"nvmlDeviceGetComputeRunningProcesses_v3",
                                                    "nvmlDeviceGetComputeRunningProcesses_v2",
                                                    &nvml.DeviceGetComputeRunningProcesses, 1},
                                                   FUNCTIONS(NAMED)};
    pthread_mutex_lock(&fork_lock.mutex);
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    pthread_mutex_unlock(&fork_lock.mutex);
    return lib && !loaded_functions(lib, names, sizeof names / sizeof *names) ? 0 : -ENOENT;
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

#define ASK(name, ...) (nvml.name && !nvml.name(d, __VA_ARGS__))
static void measure(unsigned index) {
    struct utilization util;
    struct memory_info_v2 memory = {.version = MEMORY_V2};
    struct memory_info older;
    unsigned power, temperature, clock;
    char uuid[96] = "", name[96] = "";
    void *d = NULL;
    if (nvml.DeviceGetHandleByIndex_v2(index, &d))
        return;
    int used = ASK(DeviceGetUtilizationRates, &util), has = ASK(DeviceGetMemoryInfo_v2, &memory);
    if (!has && (has = ASK(DeviceGetMemoryInfo, &older))) {
        memory.used = older.used;
        memory.total = older.total;
    }
    struct record_gpu r = {
        .ts = sys_now(),
        .device = index,
        .util = used ? util.gpu : NVML_NONE,
        .memory_util = used ? util.memory : NVML_NONE,
        .memory_used = has ? (int64_t)memory.used : NVML_NONE,
        .memory_total = has ? (int64_t)memory.total : NVML_NONE,
        .process_memory = process_memory(d),
        .power_mw = ASK(DeviceGetPowerUsage, &power) ? power : NVML_NONE,
        .temperature =
            ASK(DeviceGetTemperature, TEMPERATURE_GPU, &temperature) ? temperature : NVML_NONE,
        .sm_clock = ASK(DeviceGetClockInfo, CLOCK_SM, &clock) ? clock : NVML_NONE};
    if (ASK(DeviceGetUUID, uuid, sizeof uuid))
        r.uuid = value_bytes(uuid, strnlen(uuid, sizeof uuid));
    if (ASK(DeviceGetName, name, sizeof name))
        r.name = value_bytes(name, strnlen(name, sizeof name));
    producer_emit(0, TRACE_gpu, &r.ts_value);
}

static void *run(void *unused UNUSED) {
    unsigned n = 0, done = 0;
    uint32_t state = RUNS;
    if (load())
        state = ABSENT;
    else if ((g.error = nvml.Init_v2()) || (g.error = nvml.DeviceGetCount_v2(&n)))
        state = REFUSED;
    __atomic_store_n(&g.state, state, __ATOMIC_RELEASE);
    while (state == RUNS && sys_swap(&g.state, ENDING, IDLE) != ENDING) {
        uint32_t asked = __atomic_load_n(&g.wanted, __ATOMIC_ACQUIRE);
        if (asked == done) {
            sys_wait(&g.wanted, done, UINT64_MAX);
            continue;
        }
        done = asked; /* several requests that came meanwhile count as one */
        for (unsigned i = 0; i < n && i < DEVICES; i++)
            measure(i);
    }
    return NULL;
}

static int has_to_do(void) {
    static uint64_t without; /* fingerprint of a list of libraries with none of these */
    uint64_t now = loaded_fingerprint(NULL);
    int has = now != without &&
              (!loaded_find("libcuda.so", NULL) || !loaded_find("libtorch_cpu.so", NULL) ||
               !loaded_find("libnvidia-ml.so", NULL));
    without = has ? 0 : now;
    return has;
}

static void say(struct writer *w, uint32_t now) {
    if (g.noted == producer_generation() || now < ABSENT)
        return;
    g.noted = producer_generation();
    if (now == REFUSED)
        meta_note(w, 1, "gpu", "no GPU metrics: NVML says error %d", g.error);
    else
        meta_note(w, now != ABSENT, "gpu", "no GPU metrics: %s",
                  now == ABSENT ? "there is no libnvidia-ml.so.1 (NVML)" : "no thread");
}

static void gpu_metrics(struct writer *w) {
    uint32_t now = __atomic_load_n(&g.state, __ATOMIC_ACQUIRE);
    if (now == IDLE && has_to_do()) {
        __atomic_store_n(&g.state, STARTING, __ATOMIC_RELEASE);
        if (thread_spawn(NULL, "probing-gpu", STACK_SIZE, run, NULL))
            __atomic_store_n(&g.state, NO_THREAD, __ATOMIC_RELEASE);
    }
    if (now == ENDING && sys_swap(&g.state, ENDING, RUNS) == ENDING)
        now = RUNS; /* the thread had not ended yet */
    if (now == RUNS)
        sys_kick(&g.wanted);
    say(w, now);
}

/* Ends the thread, because the recording is over and the process goes on. */
static void gpu_leave(void) {
    if (sys_swap(&g.state, RUNS, ENDING) == RUNS)
        sys_kick(&g.wanted);
}

/* The thread is the parent's, and NVML's state a copy; a child of a parent that had no NVML may use it. */
static void child(void) {
    g.state = g.state == IDLE && !nvml.Init_v2 ? IDLE : FORKED;
}

const struct agent_part gpu_part = {.metrics = gpu_metrics, .leave = gpu_leave, .child = child};
