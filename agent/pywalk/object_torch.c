/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch's tensors: shape, type, device, and the first values of those in the memory of the CPU.
 *
 * The C++ objects behind a tensor change with torch's versions, and nothing in them says which one it is. So the version is
 * read from torch's own module, and whatever it says, a layout is trusted for a tensor only when everything agrees: the C++
 * object points back to the Python object, the number of elements is the product of the shape, the type and the
 * device are ones that exist, the storage is on the same device and large enough. Else only the tensor's address is shown.
 */
#include "object_render.h"

#include <stdlib.h>

#define MAX_DEVICES 21 /* kinds that torch 2 knows */
#define MAX_BYTES   256

struct torch_fields {
    int32_t version; /* major << 8 | minor */
    int32_t variable_impl;
    int32_t impl_size, impl_storage, impl_autograd, impl_pyobj, impl_ndim, impl_inline;
    int32_t impl_inline_max, impl_offset, impl_numel, impl_dtype, impl_device, impl_device_index,
        impl_device_there;
    int32_t impl_symbolic, symbolic_mask;
    int32_t impl_keys, bit_conjugate, bit_negative, bit_nested;
    int32_t storage_data, storage_device, storage_nbytes;
    int32_t dtype_name, device_value;
    int32_t autograd_grad_fn, autograd_requires_grad;
};
static const struct torch_fields layouts[] = {
#define TORCH_LAYOUTS
#include "torch_table.inc"
#undef TORCH_LAYOUTS
};
#define LAYOUTS (sizeof layouts / sizeof *layouts)

/* Indexed by the number that torch gives each type. */
static const struct {
    const char *name;
    uint32_t size;
    char kind; /* as in struct array_view */
} types[] = {
#define TORCH_TYPES
#include "torch_table.inc"
#undef TORCH_TYPES
};
#define TYPES (sizeof types / sizeof *types)

struct tensor {
    struct array_view v; /* data 0: not to be read */
    unsigned type;
    int8_t device, index; /* device -1: none */
    uint64_t autograd, keys;
};

/* torch.__version__, by way of the globals of a method of torch.Tensor: major << 8 | minor, or 0. */
static int32_t torch_version(struct render *r, const struct object_type *t) {
    uint64_t method, module, version;
    char text[32] = "", *end;
    long major, minor;

    if (obj_type_attribute(r, t, "__deepcopy__", &method) && obj_is(r, method, KIND_FUNCTION) &&
        obj_dict_find(r, obj_pointer(r, method + r->f->function_globals), "torch", &module) &&
        obj_is(r, module, KIND_MODULE) &&
        obj_dict_find(r, obj_pointer(r, module + r->f->module_dict), "__version__", &version))
        obj_text(r, version, text, sizeof text);
    obj_error(r);
    major = strtol(text, &end, 10);
    if (*end != '.' || major < 0 || major > 99)
        return 0;
    minor = strtol(end + 1, &end, 10);
    return minor >= 0 && minor < 256 ? (int32_t)(major << 8 | minor) : 0;
}

/* Reads the shape: the sizes, then the strides, in the object or, when there are many, outside it. */
static bool read_shape(struct render *r, const struct torch_fields *l, const uint8_t *impl,
                       struct tensor *t) {
    uint64_t ndim = load64(impl + l->impl_ndim), outside, product = 1;
    int64_t both[2 * ARRAY_DIMS];

    if (!obj_ok(r, ndim <= ARRAY_DIMS))
        return false;
    if (ndim <= (uint64_t)l->impl_inline_max) {
        memcpy(both, impl + l->impl_inline, ndim * 8);
        memcpy(both + ndim, impl + l->impl_inline + l->impl_inline_max * 8, ndim * 8);
    } else {
        outside = load64(impl + l->impl_inline);
        obj_ok(r, pywalk_plausible(outside));
        obj_get(r, outside, both, ndim * 16);
    }
    t->v.ndim = (int)ndim;
    for (uint64_t i = 0; i < ndim; i++) {
        t->v.shape[i] = both[i];
        t->v.stride[i] = both[ndim + i];
        obj_ok(r, both[i] >= 0 && !__builtin_mul_overflow(product, (uint64_t)both[i], &product) &&
                      product <= 1ull << 46 && both[ndim + i] >= 0 && both[ndim + i] <= 1ll << 46);
    }
    return obj_ok(r, product == load64(impl + l->impl_numel));
}

/* The storage must be there, be on the tensor's device, and hold the last element. */
static bool check_storage(struct render *r, const struct torch_fields *l, const uint8_t *impl,
                          struct tensor *t) {
    uint64_t storage = load64(impl + l->impl_storage), data, nbytes, last = 0, end;
    uint64_t offset = load64(impl + l->impl_offset);
    uint8_t device[2];
    bool empty = false;

    if (storage == 0) /* sparse, undefined */
        return obj_ok(r, t->device < 0 || offset == 0);
    obj_ok(r, pywalk_plausible(storage));
    obj_get(r, storage + l->storage_device, device, sizeof device);
    data = obj_u64(r, storage + l->storage_data);
    nbytes = obj_u64(r, storage + l->storage_nbytes);
    if (!obj_ok(r, (int8_t)device[0] == t->device && (int8_t)device[1] == t->index &&
                       nbytes <= 1ull << 46 && offset <= 1ull << 46))
        return false;
    for (int i = 0; i < t->v.ndim; i++) {
        empty |= t->v.shape[i] == 0;
        if (__builtin_mul_overflow((uint64_t)(t->v.shape[i] - 1), (uint64_t)t->v.stride[i], &end) ||
            __builtin_add_overflow(last, end, &last))
            last = t->v.shape[i] == 0 ? 0 : UINT64_MAX / 2;
    }
    if (empty)
        return true;
    /* A freed storage (resize_(0), as FSDP does) has no bytes: its tensors keep their shape. */
    if (!obj_ok(r, !__builtin_mul_overflow(offset + last + 1, (uint64_t)t->v.size, &end) &&
                       (end <= nbytes || nbytes == 0)))
        return false;
    if (t->device == 0 && nbytes != 0 && data != 0)
        t->v.data = data + offset * t->v.size;
    for (int i = 0; i < t->v.ndim; i++)
        t->v.stride[i] *= t->v.size;
    return true;
}

static bool try_layout(struct render *r, const struct torch_fields *l, uint64_t addr,
                       struct tensor *t) {
    uint64_t impl = obj_pointer(r, addr + l->variable_impl);
    uint8_t bytes[MAX_BYTES];

    memset(t, 0, sizeof *t);
    if (!obj_ok(r, impl != 0 && l->impl_size <= MAX_BYTES) ||
        !obj_get(r, impl, bytes, l->impl_size))
        return false;
    t->type = bytes[l->impl_dtype] | (unsigned)bytes[l->impl_dtype + 1] << 8;
    bool placed = bytes[l->impl_device_there] == 1;
    t->device = placed ? (int8_t)bytes[l->impl_device] : -1;
    t->index = placed ? (int8_t)bytes[l->impl_device_index] : -1;
    if (!obj_ok(r, (load64(bytes + l->impl_pyobj) & ~1ull) == addr /* tag: who owns whom */ &&
                       (bytes[l->impl_symbolic] & l->symbolic_mask) == 0 && t->type < TYPES &&
                       types[t->type].name != NULL && bytes[l->impl_device_there] <= 1 &&
                       (!placed || (t->device >= 0 && t->device < MAX_DEVICES && t->index >= -1))))
        return false;
    t->v.size = types[t->type].size;
    t->v.kind = types[t->type].kind;
    t->autograd = load64(bytes + l->impl_autograd);
    t->keys =
        load64(bytes + l->impl_keys); /* read only if the version is the layout's: they move */
    return read_shape(r, l, bytes, t) && check_storage(r, l, bytes, t);
}

static const char *device_name(int8_t device) {
    static const char *const names[MAX_DEVICES] = {
        [0] = "cpu",  [1] = "cuda", [6] = "hip",   [9] = "xla",
        [12] = "xpu", [13] = "mps", [14] = "meta", [15] = "hpu"};

    return names[device] != NULL ? names[device] : "other";
}

/* To be called only if the layout is of this very version: nothing could show that it is wrong. */
static bool requires_grad(struct render *r, const struct torch_fields *l, uint64_t autograd) {
    obj_ok(r, pywalk_plausible(autograd));
    /* Before both stands a std::string, which is empty. PyTorch's own builds before 2.7 have the old kind, a pointer; the new one has 32 bytes, and points
     * into itself. */
    uint32_t less = obj_u64(r, autograd + 8) == autograd + 24 ? 0 : 24;
    uint64_t grad_fn = obj_u64(r, autograd + l->autograd_grad_fn - less);
    uint8_t wanted = obj_u8(r, autograd + l->autograd_requires_grad - less);
    return obj_error(r) == 0 && (wanted == 1 || (grad_fn != 0 && pywalk_plausible(grad_fn)));
}

void obj_put_tensor(struct render *r, uint64_t addr, const struct object_type *t) {
    const struct torch_fields *l = NULL;
    struct tensor tensor = {.type = 0};
    int32_t version = torch_version(r, t);
    bool known = false, nested;

    for (size_t i = 0; i < LAYOUTS && !known; i++)
        known = layouts[i].version == version;
    for (size_t i = 0; i < LAYOUTS && l == NULL; i++) {
        if ((!known || layouts[i].version == version) && try_layout(r, &layouts[i], addr, &tensor))
            l = &layouts[i];
        obj_error(r);
    }
    if (l == NULL) {
        obj_put_shape(r, "<%T at %@>", addr, t, NULL);
        return;
    }
    tensor.keys = known ? tensor.keys : 0;
    nested = tensor.keys >> l->bit_nested & 1;
    obj_put_shape(r, nested ? "<%T nested" : "<%T shape=", addr, t, NULL);
    if (!nested)
        obj_put_dims(r, &tensor.v);
    obj_put_format(r, " dtype=%s", types[tensor.type].name);
    if (tensor.device >= 0) {
        obj_put_format(r, " device=%s", device_name(tensor.device));
        if (tensor.index >= 0)
            obj_put_format(r, ":%d", tensor.index);
    }
    if (known && tensor.autograd != 0 && requires_grad(r, l, tensor.autograd))
        obj_put(r, " requires_grad=True");
    /* Its memory holds the numbers from which the values are computed when they are asked for. */
    obj_put(r, (tensor.keys >> l->bit_conjugate & 1) != 0 ? " to be conjugated" : "");
    obj_put(r, (tensor.keys >> l->bit_negative & 1) != 0 ? " to be negated" : "");
    if (tensor.v.data != 0 && tensor.v.kind != '?' && !nested)
        obj_put_values(r, &tensor.v);
    obj_put(r, ">");
}

/* torch.float32, or device(type='cuda', index=1): in the first layout that gives something possible. */
void obj_put_torch_named(struct render *r, uint64_t addr, const struct object_type *t) {
    bool dtype = strcmp(t->native, "torch.dtype") == 0;
    char name[33] = {0};
    int8_t device[2];

    for (size_t i = 0; i < LAYOUTS; i++) {
        const struct torch_fields *l = &layouts[i];
        if (dtype) {
            obj_get(r, addr + l->dtype_name, name, 32);
            for (size_t k = 0; k < TYPES && obj_error(r) == 0; k++)
                if (types[k].name != NULL && strcmp(types[k].name, name) == 0) {
                    obj_put_format(r, "torch.%s", name);
                    return;
                }
        } else if (obj_get(r, addr + l->device_value, device, sizeof device) && device[0] >= 0 &&
                   device[0] < MAX_DEVICES && device[1] >= -1) {
            obj_put_format(r, "device(type='%s'", device_name(device[0]));
            if (device[1] >= 0)
                obj_put_format(r, ", index=%d", device[1]);
            obj_put(r, ")");
            return;
        }
        obj_error(r);
    }
    obj_put_instance(r, addr, t);
}
