/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_python.c - queries torch's Python side, in pending calls (gil.h): finds the offsets of fields in
 * torch's C++ objects, by objects with known contents; and reads the process groups' names.
 */
#include <stdio.h>

#include "agent/base/loaded.h"
#include "agent/base/memory.h"
#include "agent/comm/comm.h"
#include "agent/python/capi.h"
#include "agent/python/pyvalue.h"
#include "agent/torch/torch_lib.h"

#define MARK         0x5a5a1234L /* no pointer, no size */
#define IMPL_BYTES   320u
#define CODE_BYTES   64u
#define OBJECT_BYTES 4096u
#define TRIES        250 /* most pending calls until torch is completely imported, and in no mode */

struct comm_layout comm_layout = {-1, -1, {-1, -1, -1, -1}, -1};

/* ---- offsets ---- */

/* Returns the address of the C++ object of a pybind11 instance: the first word after the Python object's header. */
static char *value_of(void *instance) {
    uint64_t p = 0;
    int err = !instance || memory_read_self((uint64_t)(uintptr_t)instance + 16, &p, sizeof p);
    return err ? NULL : (char *)(uintptr_t)p;
}

/* Makes torch.TYPE(7, 1031), which is in the CPU's memory whatever the default device is, and which no TorchFunctionMode of the program's
 * sees. Returns the address of its TensorImpl; *keep: the tensor itself, a new reference. */
static const char *make_tensor(void *torch, const char *name, void **keep) {
    CAPI_AUTO void *type = capi_attr(torch, name);
    *keep = type ? py.PyObject_CallFunction(type, "ii", 7, 1031) : NULL;
    CAPI_AUTO void *cdata = capi_attr(*keep, "_cdata");
    return (const char *)capi_long(cdata, 0);
}

/* Finds the only offset that has the number of elements (a product that equals no size or stride), followed by the type's number. */
static void measure_tensor(void *torch) {
    CAPI_AUTO void *a = NULL, *b = NULL;
    const char *doubles = make_tensor(torch, "DoubleTensor", &a),
               *ints = make_tensor(torch, "IntTensor", &b);
    char x[IMPL_BYTES] = {0}, y[IMPL_BYTES] = {0};
    int found = -1, n = 0;
    if (!doubles || !ints)
        return;
    for (size_t i = 0; i < IMPL_BYTES; i += 8) /* the page after the object may not be mapped */
        if (memory_read_self((uint64_t)(uintptr_t)doubles + i, x + i, 8) ||
            memory_read_self((uint64_t)(uintptr_t)ints + i, y + i, 8))
            break;
    for (size_t i = 0; i + 16 <= IMPL_BYTES; i += 8) {
        int64_t nx, ny;
        uint16_t tx, ty;
        memcpy(&nx, x + i, 8);
        memcpy(&ny, y + i, 8);
        memcpy(&tx, x + i + 8, 2);
        memcpy(&ty, y + i + 8, 2);
        if (nx == 7 * 1031 && ny == nx && tx == 7 && ty == 3) {
            found = (int)i;
            n++;
        }
    }
    if (n == 1) {
        comm_layout.numel = found;
        comm_layout.dtype = found + 8;
    }
}

static int root_offset(void *distributed, const char *name) {
    CAPI_AUTO void *type = capi_attr(distributed, name), *mark = py.PyLong_FromLong(MARK);
    CAPI_AUTO void *opts = capi_call(type);
    int at = -1;
    if (opts && mark && !py.PyObject_SetAttrString(opts, "rootRank", mark)) {
        const char *p = value_of(opts);
        for (int i = 0; p && i < 128 && at < 0; i += 8) {
            int64_t v = 0;
            if (!memory_read_self((uint64_t)(uintptr_t)p + (unsigned)i, &v, 8) && v == MARK)
                at = i;
        }
    }
    py.PyErr_Clear();
    return at;
}

/*
 * Returns the offset at which ProcessGroupGloo counts its collectives. It is read from the instructions of nextTag(), which is not called
 * (from 2.14 on it throws for an incomplete object). Compilers translate `return counter_++` into:
 *     mov OFFSET(%this),%eax; lea 1(%rax),%edx; mov %edx,OFFSET(%this)
 */
static int tag_offset(void) {
    unsigned char code[CODE_BYTES] = {0};
    void *cpu;
    uint32_t load, store, this_in_rbx = 0;
    void *p = loaded_find("libtorch_cpu.so", &cpu)
                  ? NULL
                  : dlsym(cpu, "_ZN4c10d16ProcessGroupGloo7nextTagEv");
    if (!p || memory_read_self((uint64_t)(uintptr_t)p, code, sizeof code))
        return -1;
    for (const unsigned char *c = code; c + 15 <= code + sizeof code; c++) {
        this_in_rbx |= !memcmp(c, "\x48\x89\xfb", 3);
        if (memcmp(c + 6, "\x8d\x50\x01\x89", 4) || c[0] != 0x8b)
            continue;
        memcpy(&load, c + 2, sizeof load);
        memcpy(&store, c + 11, sizeof store);
        if (load == store && load < OBJECT_BYTES &&
            ((c[1] == 0x87 && c[10] == 0x97) || (this_in_rbx && c[1] == 0x83 && c[10] == 0x93)))
            return (int)load;
    }
    return -1;
}

void comm_python_measure(void) {
    static const char *const options[4] = {"BroadcastOptions", "ReduceOptions", "GatherOptions",
                                           "ScatterOptions"};
    static int tries, known, brief = 5000;
    void *torch = capi_module("torch"), *c10d = capi_module("torch.distributed.distributed_c10d");
    CAPI_AUTO void *world = capi_attr(c10d, "init_process_group");
    __atomic_store_n(&comm_soon, world && !torch && brief-- > 0, __ATOMIC_RELAXED);
    if (!torch || !world || known)
        return; /* torch is still being imported: try again later */
    /* Not within a TorchDispatchMode of the program's, which would see it. */
    if (comm_layout.numel < 0 && !(torch_lib.modes && torch_lib.modes(0)))
        measure_tensor(torch);
    if (comm_layout.numel < 0 && tries++ < TRIES)
        return;
    for (int i = 0; i < 4; i++)
        comm_layout.root[i] = root_offset(c10d, options[i]);
    comm_layout.tag = tag_offset();
    known = 1;
    comm_install();
}

/* ---- names ---- */

static long number(void *object, const char *method, long otherwise) {
    CAPI_AUTO void *v = py.PyObject_CallMethod(object, method, NULL);
    return capi_long(v, otherwise);
}

/* dict {global rank: rank in the group} -> g->ranks[] */
static void take_ranks(struct comm_group *g, void *dict) {
    void *key, *value;
    ssize_t at = 0;
    uint32_t n = 0;
    g->nranks = 0; /* if they are too many to list: all or nothing */
    while (py.PyDict_Next(dict, &at, &key, &value)) {
        long global = capi_long(key, -1), mine = capi_long(value, -1);
        if (global < 0 || mine < 0 || mine >= (long)(sizeof g->ranks / sizeof *g->ranks))
            return;
        g->ranks[mine] = (uint64_t)global;
        n++;
    }
    g->nranks = n;
}

/* Makes a name unique: torch counts from "0" again once all groups are destroyed. */
static void number_again(struct comm_group *g) {
    size_t n = strlen(g->name);
    unsigned nth = 1;
    for (const struct comm_group *o = comm_group_at(0); o < g; o++)
        nth += o->backend == g->backend && !strncmp(o->name, g->name, n) &&
               (!o->name[n] || o->name[n] == '#');
    if (nth > 1)
        snprintf(g->name + n, sizeof g->name - n, "#%u", nth);
}

static void take_group(void *pg, void *object, void *name, void *ranks) {
    struct comm_group *g;
    char *self = value_of(object);
    for (unsigned i = 0; self && (g = comm_group_at(i)); i++) {
        if (__atomic_load_n(&g->self, __ATOMIC_RELAXED) != self || g->named)
            continue;
        pyvalue_text(name, g->name, sizeof g->name);
        number_again(g);
        CAPI_AUTO void *desc = capi_attr(pg, "group_desc"); /* from 2.3 on */
        if (desc)
            pyvalue_text(desc, g->desc, sizeof g->desc);
        g->size = (int32_t)number(pg, "size", -1);
        void *dict = ranks ? py.PyDict_GetItem(ranks, pg) : NULL;
        if (dict)
            take_ranks(g, dict);
        __atomic_store_n(&g->rank, (int32_t)number(pg, "rank", -1), __ATOMIC_RELAXED);
        __atomic_store_n(&g->named, 1, __ATOMIC_RELEASE);
    }
}

/* Takes the backends of a ProcessGroup: from 2.0 on it has one for each kind of device. */
static void take_backends(void *torch, void *pg, void *name, void *ranks) {
    static const char *const kinds[] = {"cpu", "cuda"};
    CAPI_AUTO void *device = capi_attr(torch, "device");
    for (int i = 0; i < 2 && device; i++) {
        CAPI_AUTO void *kind = py.PyObject_CallFunction(device, "s", kinds[i]);
        CAPI_AUTO void *backend =
            kind ? py.PyObject_CallMethod(pg, "_get_backend", "O", kind) : NULL;
        if (backend)
            take_group(pg, backend, name, ranks);
        py.PyErr_Clear();
    }
}

void comm_python_names(void) {
    void *torch = capi_module("torch"), *c10d = capi_module("torch.distributed.distributed_c10d");
    CAPI_AUTO void *world = capi_attr(c10d, "_world");
    CAPI_AUTO void *names = world ? capi_attr(world, "pg_names") : capi_attr(c10d, "_pg_names");
    CAPI_AUTO void *ranks =
        world ? capi_attr(world, "pg_group_ranks") : capi_attr(c10d, "_pg_group_ranks");
    void *pg, *name;
    struct comm_group *g;
    ssize_t at = 0;
    while (torch && names && py.PyDict_Next(names, &at, &pg, &name)) {
        py.Py_IncRef(pg);
        py.Py_IncRef(name);
        take_group(pg, pg, name, ranks);
        take_backends(torch, pg, name, ranks);
        py.Py_DecRef(pg);
        py.Py_DecRef(name);
    }
    for (unsigned i = 0; (g = comm_group_at(i)); i++)
        g->tries++;
    py.PyErr_Clear();
}
