#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes torch_table.inc: where torch keeps a tensor's shape, type and device, taken from its own C++ headers.

usage: gen_torch.py [-o FILE] [--check FILE] [-I DIR ...] TORCH_INCLUDE_DIR ...

A TORCH_INCLUDE_DIR holds torch/ and c10/ (site-packages/torch/include; libtorch-dev's /usr/include). -I names more
directories: for Python.h (default: this Python's), pybind11, and whatever else the headers ask for. The program is
compiled without access control, for the members are private, and nothing of torch is called. Takes half a
minute for each version. object_torch.c checks at run time that a layout fits.
"""

import argparse
import re
import subprocess
import sys
import sysconfig
import tempfile

PROGRAM = r"""
#include <cstdio>
#include <cstring>
#include <new>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/api/include/torch/version.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

using c10::TensorImpl;
#define OFF(name, type, field) std::printf(#name " %zu\n", offsetof(type, field))
#define VAL(name, value) std::printf(#name " %lld\n", (long long)(value))

template <class T> size_t tensor_in(T *) { return 0; }                        /* at::Tensor itself */
template <class T> size_t tensor_in(c10::MaybeOwned<T> *) { return offsetof(c10::MaybeOwned<T>, own_); }
template <class T> auto pyobj(T *) -> decltype((void)sizeof(T::pyobj_), size_t()) { return offsetof(T, pyobj_); }
template <class T> auto pyobj(T *) -> decltype((void)sizeof(T::pyobj_slot_), size_t()) {
    return offsetof(T, pyobj_slot_) + offsetof(decltype(T::pyobj_slot_), pyobj_);
}

int main() {
    alignas(16) static char bytes[sizeof(TensorImpl)];
    THPVariable *variable = nullptr;

    VAL(version, TORCH_VERSION_MAJOR << 8 | TORCH_VERSION_MINOR);
    VAL(variable_impl, offsetof(THPVariable, cdata) + tensor_in(&variable->cdata));
    VAL(impl_size, sizeof(TensorImpl));
    OFF(impl_storage, TensorImpl, storage_);
    OFF(impl_autograd, TensorImpl, autograd_meta_);
    VAL(impl_pyobj, pyobj((TensorImpl *)nullptr));
    VAL(impl_ndim, offsetof(TensorImpl, sizes_and_strides_) + offsetof(c10::impl::SizesAndStrides, size_));
    VAL(impl_inline, offsetof(TensorImpl, sizes_and_strides_) +
                     offsetof(c10::impl::SizesAndStrides, inlineStorage_));
    VAL(impl_inline_max, sizeof(c10::impl::SizesAndStrides::inlineStorage_) / 16);
    OFF(impl_offset, TensorImpl, storage_offset_);
    OFF(impl_numel, TensorImpl, numel_);
    OFF(impl_dtype, TensorImpl, data_type_);
    OFF(impl_keys, TensorImpl, key_set_);
    /* Bits of it: what its memory holds is not its values. */
#define BIT(name, key) VAL(name, __builtin_ctzll(c10::DispatchKeySet(c10::DispatchKey::key).raw_repr()))
    BIT(bit_conjugate, Conjugate);
    BIT(bit_negative, Negative);
    BIT(bit_nested, NestedTensor);
    {   /* Whether there is a device comes before it in torch's own optional, and behind it in the library's. */
        alignas(16) static char optional[sizeof(TensorImpl::device_opt_)];
        new (optional) decltype(TensorImpl::device_opt_)(c10::Device(c10::DeviceType::XLA, 7));
        for (size_t i = 0; i < sizeof optional; i++) {
            if (optional[i] == (char)c10::DeviceType::XLA)
                VAL(impl_device, offsetof(TensorImpl, device_opt_) + i);
            if (optional[i] == 7)
                VAL(impl_device_index, offsetof(TensorImpl, device_opt_) + i);
            if (optional[i] == 1)
                VAL(impl_device_there, offsetof(TensorImpl, device_opt_) + i);
        }
    }
    reinterpret_cast<TensorImpl *>(bytes)->has_symbolic_sizes_strides_ = true;
    for (size_t i = 0; i < sizeof bytes; i++)
        if (bytes[i] != 0) {
            VAL(impl_symbolic, i);
            VAL(symbolic_mask, (unsigned char)bytes[i]);
        }
    VAL(storage_data, offsetof(c10::StorageImpl, data_ptr_) + offsetof(c10::DataPtr, ptr_) +
                      offsetof(c10::detail::UniqueVoidPtr, data_));
    VAL(storage_device, offsetof(c10::StorageImpl, data_ptr_) + offsetof(c10::DataPtr, device_));
    OFF(storage_nbytes, c10::StorageImpl, size_bytes_);
    OFF(dtype_name, THPDtype, name);
    OFF(device_value, THPDevice, device);
    OFF(autograd_grad_fn, torch::autograd::AutogradMeta, grad_fn_);
    OFF(autograd_requires_grad, torch::autograd::AutogradMeta, requires_grad_);
    /* The numbers of types and devices are the same in all versions: later ones are added at the end. */
    VAL(types, c10::ScalarType::NumOptions);
    VAL(devices, c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES);
#define TYPE(ctype, name) std::printf("type %d %s %d\n", (int)c10::ScalarType::name, #name, (int)sizeof(ctype));
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(TYPE)
    static_assert((int)c10::DeviceType::CPU == 0 && (int)c10::DeviceType::CUDA == 1 &&
                  (int)c10::DeviceType::HIP == 6 && (int)c10::DeviceType::XLA == 9 &&
                  (int)c10::DeviceType::XPU == 12 && (int)c10::DeviceType::MPS == 13 &&
                  (int)c10::DeviceType::Meta == 14 && (int)c10::DeviceType::HPU == 15, "numbers of devices");
    return 0;
}
"""

# What Python calls them, and how values are shown: numpy's letter for the kind, or ? when they are not.
TYPES = {
    "Byte": ("uint8", "u"), "Char": ("int8", "i"), "Short": ("int16", "i"), "Int": ("int32", "i"),
    "Long": ("int64", "i"), "Half": ("float16", "f"), "Float": ("float32", "f"), "Double": ("float64", "f"),
    "ComplexHalf": ("complex32", "?"), "ComplexFloat": ("complex64", "c"), "ComplexDouble": ("complex128", "c"),
    "Bool": ("bool", "b"), "QInt8": ("qint8", "?"), "QUInt8": ("quint8", "?"), "QInt32": ("qint32", "?"),
    "BFloat16": ("bfloat16", "B"), "QUInt4x2": ("quint4x2", "?"), "QUInt2x4": ("quint2x4", "?"),
    "UInt16": ("uint16", "u"), "UInt32": ("uint32", "u"), "UInt64": ("uint64", "u"),
}


def name_of(name):
    known = TYPES.get(name)
    if known is None:  # Float8_e5m2, Bits8, Int4: as Python's name, in small letters
        known = (name.lower(), "?")
    return known


def layout(include, more):
    """({field: value}, {number: (name, size)}) of one set of headers."""
    with tempfile.TemporaryDirectory() as tmp:
        with open(tmp + "/t.cpp", "w") as f:
            f.write(PROGRAM)
        flags = ["-I" + i for i in more] + ["-I" + include, "-I" + include + "/torch/csrc/api/include",
                                            "-I" + sysconfig.get_paths()["include"]]
        subprocess.run(["c++", "-std=c++20", "-O0", "-w", "-fno-access-control", "-no-pie", *flags, tmp + "/t.cpp",
                        "-o", tmp + "/t", "-Wl,--unresolved-symbols=ignore-all"], check=True)
        text = subprocess.run([tmp + "/t"], check=True, stdout=subprocess.PIPE).stdout.decode()
    types, fields = {}, {}
    for line in text.splitlines():
        words = line.split()
        if words[0] == "type":
            types[int(words[1])] = (words[2], int(words[3]))
        else:
            fields[words[0]] = int(words[1])
    return fields, types


def render(results):
    out = ["/* SPDX-License-Identifier: Apache-2.0 */",
           "/* Written by gen_torch.py from the headers of the versions named below: do not edit. x86-64, libstdc++. */"]
    all_types, layouts = {}, []
    for fields, types in results:
        fields = dict(fields)
        fields.pop("types")
        fields.pop("devices")
        for number, what in types.items():
            if all_types.setdefault(number, what) != what:
                sys.exit("gen_torch: type %d is %s and %s" % (number, all_types[number], what))
        layouts.append(fields)
    out.append("#ifdef TORCH_LAYOUTS")
    for fields in sorted(layouts, key=lambda f: f["version"]):
        out.append("/* %d.%d */" % (fields["version"] >> 8, fields["version"] & 255))
        out.append("{")
        out += ["    .%s = %s," % pair for pair in fields.items()]
        out.append("},")
    out.append("#endif")
    out.append("#ifdef TORCH_TYPES")
    for number, (name, size) in sorted(all_types.items()):
        out.append("[%d] = {\"%s\", %d, '%s'}," % (number, name_of(name)[0], size, name_of(name)[1]))
    out.append("#endif")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", metavar="FILE")
    parser.add_argument("--check", metavar="FILE", help="fail when FILE is another one")
    parser.add_argument("-I", metavar="DIR", action="append", default=[])
    parser.add_argument("include", nargs="+")
    args = parser.parse_args()
    text = render([layout(i, args.I) for i in args.include])
    if args.check:
        with open(args.check) as f:
            if re.sub(r"/\*.*?\*/", "", f.read()) != re.sub(r"/\*.*?\*/", "", text):
                sys.exit("gen_torch: %s differs" % args.check)
        print("gen_torch: %d layouts agree" % len(args.include))
    elif args.o:
        with open(args.o, "w") as f:
            f.write(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
