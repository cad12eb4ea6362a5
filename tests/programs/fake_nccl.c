/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake NCCL and a fake libtorch_cuda.so: the tests copy this library to libnccl.so.2 and libtorch_cuda.so, and load both. The second
 * has a ProcessGroupNCCL with one virtual function (allreduce), which calls ncclAllReduce() as torch does: through the table of imported
 * functions, and in a group. When the outermost group ends, the first gives the fake driver (fake_cuda.c) a kernel for each of these calls.
 * It tests the agent: the order of events, and that the GPU's times reach the database. For the real libraries: tests/gpu/check.py.
 */
#include <stddef.h>
#include <stdint.h>

#define API(result) __attribute__((visibility("default"))) result
#define MOST        16

/* ---- libnccl.so.2 ---- */

API(void) fake_nccl(void (*launch)(int stream, uint64_t ns), uint64_t ns);
API(int) ncclGroupStart(void);
API(int) ncclGroupEnd(void);
API(int) ncclCommAbort(void *comm);
API(int)
ncclAllReduce(const void *from, void *to, size_t n, int type, int op, void *comm, void *stream);

static void (*give)(int stream, uint64_t ns);
static uint64_t lasts;
static int depth, waiting, streams[MOST];

/* launch: that of fake_cuda.c; each kernel takes ns. */
void fake_nccl(void (*launch)(int stream, uint64_t ns), uint64_t ns) {
    give = launch;
    lasts = ns;
}

int ncclGroupStart(void) {
    depth++;
    return 0;
}

int ncclGroupEnd(void) {
    if (!--depth)
        while (waiting)
            give(streams[--waiting], lasts);
    return 0;
}

/* Ends what is in flight without doing anything: for the GPU it is over, as any other operation. The test releases the stream. */
int ncclCommAbort(void *comm) {
    (void)comm;
    return 0;
}

int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, void *comm,
                  void *stream) {
    (void)from, (void)to, (void)n, (void)type, (void)op, (void)comm;
    if (depth && waiting < MOST)
        streams[waiting++] = (int)(uintptr_t)stream;
    else
        give((int)(uintptr_t)stream, lasts);
    return 0;
}

/* ---- libtorch_cuda.so ---- */

struct vector {
    void *begin, *end, *last;
};
struct options { /* torch's say something else; nobody looks into them for an allreduce */
    int64_t stream, parts;
};
struct group {
    void **vtable;
    uint64_t count;
};

API(void)
*allreduce(void *result, struct group *self, struct vector *tensors,
           const struct options *options) __asm__("_ZN4c10d16ProcessGroupNCCL9allreduceERSt6vectorI"
                                                  "N2at6TensorESaIS3_EERKNS_16AllreduceOptionsE");
API(uint64_t)
count_of(struct group *self) __asm__("_ZN4c10d16ProcessGroupNCCL25getSequenceNumberForGroupEv");
extern void *table[3] __asm__("_ZTVN4c10d16ProcessGroupNCCLE");
API(void) fake_all_reduce(int stream, int parts);
API(void) fake_group(int on);
API(void) fake_count(uint64_t count);
API(void) fake_communicator(uint64_t which);
API(void) fake_abort(uint64_t which);

static uint64_t communicator;

void *allreduce(void *result, struct group *self, struct vector *tensors,
                const struct options *options) {
    (void)tensors;
    self->count++;
    ncclGroupStart();
    for (int64_t i = 0; i < options->parts; i++)
        ncclAllReduce(NULL, NULL, 1, 0, 0, (void *)(uintptr_t)communicator,
                      (void *)(uintptr_t)options->stream);
    ncclGroupEnd();
    *(void **)result = NULL;
    return result;
}

uint64_t count_of(struct group *self) {
    return self->count;
}

__attribute__((visibility("default"))) void *table[3] = {NULL, NULL, (void *)allreduce};
static struct group group = {table + 2, 0};

/* Calls the virtual function, which makes so many calls of NCCL. */
void fake_all_reduce(int stream, int parts) {
    struct vector none = {NULL, NULL, NULL};
    struct options options = {stream, parts};
    void *work, *(*volatile call)(void *, struct group *, struct vector *, const struct options *);
    __builtin_memcpy((void *)&call, group.vtable, sizeof call);
    call(&work, &group, &none, &options);
}

/* Like torch's coalescing manager: operations that are called meanwhile begin when the group ends. */
void fake_group(int on) {
    if (on)
        ncclGroupStart();
    else
        ncclGroupEnd();
}

/* Sets the number of collectives that were called before. */
void fake_count(uint64_t count) {
    group.count = count;
}

/* Sets the communicator of the calls from now on. */
void fake_communicator(uint64_t which) {
    communicator = which;
}

void fake_abort(uint64_t which) {
    ncclCommAbort((void *)(uintptr_t)which);
}
