/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake libnvidia-ml.so.1 with two GPUs whose numbers a test knows. It tests the way from NVML's functions to the database, not
 * NVML itself. The test builds it as a shared library (cc -shared -fPIC).
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct utilization {
    unsigned gpu, memory;
};
struct memory_info {
    unsigned long long total, free, used;
};
struct process_info {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

static char devices[2];
static int users, control; /* whoever was first has opened the device's file, and all use it */

int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device);
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *u);
int nvmlDeviceGetMemoryInfo(void *device, struct memory_info *m);
int nvmlDeviceGetPowerUsage(void *device, unsigned *mw);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *t);
int nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz);
int nvmlDeviceGetUUID(void *device, char *buf, unsigned n);
int nvmlDeviceGetName(void *device, char *buf, unsigned n);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, struct process_info *list);

static unsigned index_of(void *device) {
    return (unsigned)((char *)device - devices);
}

int nvmlInit_v2(void) {
    if (getenv("FAKE_NVML_ERROR"))
        return 9;
    if (!users++)
        control = open("/dev/null", O_RDWR | O_CLOEXEC);
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *n) {
    *n = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) {
    *device = &devices[i];
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, struct utilization *u) {
    const char *name = getenv("FAKE_NVML_UTIL"); /* a file that says how busy the first GPU is */
    FILE *f = index_of(device) == 0 && name ? fopen(name, "r") : NULL;
    if (!f || fscanf(f, "%u", &u->gpu) != 1)
        u->gpu = 70 + index_of(device);
    if (f)
        fclose(f);
    u->memory = 30 + index_of(device);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory_info *m) {
    struct stat st;
    if (fstat(control, &st) || st.st_rdev != makedev(1, 3))
        return 999; /* NVML_ERROR_UNKNOWN */
    m->total = 80ull << 30;
    m->used = (10ull + index_of(device)) << 30;
    m->free = m->total - m->used;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *mw) {
    *mw = 312500 + index_of(device);
    return 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *t) {
    *t = 55 + index_of(device);
    return sensor;
}

int nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz) {
    *mhz = 1980 + index_of(device);
    return which != 1;
}

int nvmlDeviceGetUUID(void *device, char *buf, unsigned n) {
    snprintf(buf, n, "GPU-fake-%u", index_of(device));
    return 0;
}

int nvmlDeviceGetName(void *device, char *buf, unsigned n) {
    (void)device;
    snprintf(buf, n, "Made-up GPU");
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, struct process_info *list) {
    memset(list, 0, 2 * sizeof *list);
    list[0].pid = (unsigned)getpid();
    list[0].used = (3ull + index_of(device)) << 30;
    list[1].pid = 1;
    list[1].used = 5ull << 30;
    *n = 2;
    return 0;
}
