#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes object_table.inc: where CPython keeps the contents of its objects, taken from each version's own headers.

usage: gen_objects.py [-o FILE] [--check FILE] [INCLUDE_DIR ...]

Used as gen_offsets.py is, and does its work. Where the headers have inline functions and no structure (a split
dictionary's order, values kept in the object), the program calls them on memory of its own and looks what they did.
"""

import gen_offsets

PROGRAM = r"""
#define Py_BUILD_CORE 1
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <structmember.h>
#include <datetime.h>
#if PY_VERSION_HEX >= 0x03090000
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#endif
#if PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_dict.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_object.h>
#include <internal/pycore_long.h>
#include <internal/pycore_code.h>
#define FRAME _PyInterpreterFrame
#else
#include <longintrepr.h>
#define FRAME PyFrameObject
/* These structures of 3.6 to 3.10 are in a source file, not in a header; object_render.c says how they are checked. */
typedef struct { Py_ssize_t dk_refcnt, dk_size; void *dk_lookup; Py_ssize_t dk_usable, dk_nentries; char dk_indices[]; } Keys;
typedef struct { Py_hash_t me_hash; PyObject *me_key, *me_value; } PyDictKeyEntry;
#endif
#if PY_VERSION_HEX >= 0x030d0000
#include <internal/pycore_moduleobject.h>
#endif
#if __has_include(<internal/pycore_interpframe_structs.h>)
#include <internal/pycore_interpframe_structs.h>
#endif

#define OFF(name, type, field) printf(#name " %zu\n", offsetof(type, field))
#define VAL(name, value) printf(#name " %lld\n", (long long)(value))

int main(void) {
    VAL(version, PY_VERSION_HEX);
    VAL(ob_head, sizeof(PyObject));
    OFF(ob_size, PyVarObject, ob_size);
    VAL(flag_heap, Py_TPFLAGS_HEAPTYPE);
    VAL(flag_long, Py_TPFLAGS_LONG_SUBCLASS);
    VAL(flag_list, Py_TPFLAGS_LIST_SUBCLASS);
    VAL(flag_tuple, Py_TPFLAGS_TUPLE_SUBCLASS);
    VAL(flag_bytes, Py_TPFLAGS_BYTES_SUBCLASS);
    VAL(flag_str, Py_TPFLAGS_UNICODE_SUBCLASS);
    VAL(flag_dict, Py_TPFLAGS_DICT_SUBCLASS);
    VAL(flag_exception, Py_TPFLAGS_BASE_EXC_SUBCLASS);
    VAL(flag_type, Py_TPFLAGS_TYPE_SUBCLASS);
#if PY_VERSION_HEX >= 0x030b0000
    VAL(flag_managed_dict, Py_TPFLAGS_MANAGED_DICT);
#endif
#if PY_VERSION_HEX >= 0x030d0000
    VAL(flag_inline_values, Py_TPFLAGS_INLINE_VALUES);
#endif
    OFF(tp_name, PyTypeObject, tp_name);
    OFF(tp_basicsize, PyTypeObject, tp_basicsize);
    OFF(tp_itemsize, PyTypeObject, tp_itemsize);
    OFF(tp_flags, PyTypeObject, tp_flags);
    OFF(tp_members, PyTypeObject, tp_members);
    OFF(tp_base, PyTypeObject, tp_base);
    OFF(tp_dict, PyTypeObject, tp_dict);
    OFF(tp_dictoffset, PyTypeObject, tp_dictoffset);
    OFF(ht_qualname, PyHeapTypeObject, ht_qualname);
    OFF(ht_cached_keys, PyHeapTypeObject, ht_cached_keys);
    VAL(member_size, sizeof(PyMemberDef));
    OFF(member_name, PyMemberDef, name);
    OFF(member_type, PyMemberDef, type);
    OFF(member_offset, PyMemberDef, offset);
    VAL(member_object, T_OBJECT_EX);
#if PY_VERSION_HEX >= 0x030c0000
    OFF(int_size, PyLongObject, long_value.lv_tag);
    OFF(int_digits, PyLongObject, long_value.ob_digit);
    VAL(int_tag_shift, _PyLong_NON_SIZE_BITS);
#else
    OFF(int_size, PyVarObject, ob_size);
    OFF(int_digits, PyLongObject, ob_digit);
#endif
    VAL(int_digit_bits, PyLong_SHIFT);
    VAL(int_digit_size, sizeof(digit));
#if PY_VERSION_HEX < 0x030c0000
    OFF(str_wstr, PyASCIIObject, wstr);
    OFF(str_wstr_length, PyCompactUnicodeObject, wstr_length);
#endif
    OFF(float_value, PyFloatObject, ob_fval);
    OFF(complex_value, PyComplexObject, cval);
    OFF(list_items, PyListObject, ob_item);
    OFF(tuple_items, PyTupleObject, ob_item);
    OFF(bytearray_start, PyByteArrayObject, ob_start);
    OFF(set_used, PySetObject, used);
    OFF(set_mask, PySetObject, mask);
    OFF(set_table, PySetObject, table);
    VAL(set_entry, sizeof(setentry));
    OFF(set_key, setentry, key);
    OFF(set_hash, setentry, hash);
    OFF(dict_used, PyDictObject, ma_used);
    OFF(dict_keys, PyDictObject, ma_keys);
    OFF(dict_values, PyDictObject, ma_values);
#if PY_VERSION_HEX >= 0x030b0000
    OFF(keys_log2, PyDictKeysObject, dk_log2_size);
    OFF(keys_log2_bytes, PyDictKeysObject, dk_log2_index_bytes);
    OFF(keys_kind, PyDictKeysObject, dk_kind);
    OFF(keys_entries, PyDictKeysObject, dk_nentries);
    OFF(keys_indices, PyDictKeysObject, dk_indices);
    VAL(keys_general, DICT_KEYS_GENERAL);
    VAL(entry_unicode, sizeof(PyDictUnicodeEntry));
    OFF(entry_unicode_key, PyDictUnicodeEntry, me_key);
    OFF(entry_unicode_value, PyDictUnicodeEntry, me_value);
#else
    OFF(keys_log2, Keys, dk_size);
    OFF(keys_entries, Keys, dk_nentries);
    OFF(keys_indices, Keys, dk_indices);
#endif
    VAL(entry_general, sizeof(PyDictKeyEntry));
    OFF(entry_general_key, PyDictKeyEntry, me_key);
    OFF(entry_general_value, PyDictKeyEntry, me_value);
#if PY_VERSION_HEX >= 0x030b0000
    {   /* Where a split dictionary keeps the order in which its values came: their count, and the first two. */
        union { unsigned char bytes[512]; PyDictValues align[1]; } u, v;
        PyDictValues *values = (PyDictValues *)(u.bytes + 256);
        memset(&u, 0, sizeof u);
        memset(&v, 0, sizeof v);
        u.bytes[255] = 30;
#if PY_VERSION_HEX >= 0x030d0000
        values->capacity = 30;
        OFF(values_capacity, PyDictValues, capacity);
        OFF(values_valid, PyDictValues, valid);
        OFF(values_first, PyDictValues, values);
#define VALUES_END ((long)offsetof(PyDictValues, values[30]))
#else
#define VALUES_END 0
#endif
        _PyDictValues_AddToInsertionOrder(values, 27);
        _PyDictValues_AddToInsertionOrder(values, 28);
        for (int i = 0; i < 512; i++) {
            if (u.bytes[i] == 2) VAL(values_size, i - 256);
            /* 3.13: from the end of the values, else from their beginning */
            if (u.bytes[i] == 27) VAL(values_order, i - 256 - VALUES_END);
            if (u.bytes[i] == 28) VAL(values_order_next, i - 256 - VALUES_END);
        }
    }
    {
        PyTypeObject type;
        struct { void *before[8]; PyObject ob; void *after[8]; } o;
        memset(&type, 0, sizeof type);
        memset(&o, 0, sizeof o);
        type.tp_flags = Py_TPFLAGS_MANAGED_DICT;
        type.tp_basicsize = sizeof(PyObject);
#if PY_VERSION_HEX >= 0x030d0000
        type.tp_flags |= Py_TPFLAGS_INLINE_VALUES;
#endif
        o.ob.ob_type = &type;
#if PY_VERSION_HEX >= 0x030d0000
        VAL(managed_dict, (char *)_PyObject_ManagedDictPointer(&o.ob) - (char *)&o.ob);
        VAL(inline_values, (char *)_PyObject_InlineValues(&o.ob) - (char *)&o.ob - type.tp_basicsize);
#elif PY_VERSION_HEX >= 0x030c0000
        VAL(managed_dict, (char *)_PyObject_DictOrValuesPointer(&o.ob) - (char *)&o.ob);
        PyDictOrValues either;
        _PyDictOrValues_SetValues(&either, (PyDictValues *)4096);
        VAL(managed_tagged, 4096 - (long long)(size_t)either.values);
#else
        VAL(managed_dict, (char *)_PyObject_ManagedDictPointer(&o.ob) - (char *)&o.ob);
        VAL(managed_values, (char *)_PyObject_ValuesPointer(&o.ob) - (char *)&o.ob);
#endif
    }
#endif
    OFF(exception_args, PyBaseExceptionObject, args);
    OFF(cell_value, PyCellObject, ob_ref);
    OFF(function_code, PyFunctionObject, func_code);
    OFF(function_globals, PyFunctionObject, func_globals);
    OFF(function_qualname, PyFunctionObject, func_qualname);
    OFF(method_function, PyMethodObject, im_func);
    OFF(method_self, PyMethodObject, im_self);
    OFF(builtin_def, PyCFunctionObject, m_ml);
    OFF(builtin_self, PyCFunctionObject, m_self);
    OFF(generator_qualname, PyGenObject, gi_qualname);
#if PY_VERSION_HEX >= 0x030d0000
    OFF(module_dict, PyModuleObject, md_dict);
#else
    VAL(module_dict, sizeof(PyObject));
#endif
    OFF(slice_start, PySliceObject, start);
    VAL(range_start, sizeof(PyObject));
#define AFTER(type, field, next) _Static_assert(offsetof(type, next) == offsetof(type, field) + sizeof ((type *)0)->field, #type)
    AFTER(PyDateTime_Date, hastzinfo, data);
    AFTER(PyDateTime_Time, hastzinfo, data);
    AFTER(PyDateTime_Time, data, fold);
    AFTER(PyDateTime_DateTime, hastzinfo, data);
    AFTER(PyDateTime_DateTime, data, fold);
    AFTER(PyDateTime_Delta, days, seconds);
    AFTER(PyDateTime_Delta, seconds, microseconds);
    OFF(date_aware, PyDateTime_DateTime, hastzinfo);
    VAL(date_size, sizeof(PyDateTime_Date));
    OFF(time_zone, PyDateTime_Time, tzinfo);
    VAL(time_size, sizeof(PyDateTime_Time));
    OFF(datetime_zone, PyDateTime_DateTime, tzinfo);
    VAL(datetime_size, sizeof(PyDateTime_DateTime));
    OFF(delta_days, PyDateTime_Delta, days);
    VAL(delta_size, sizeof(PyDateTime_Delta));
    OFF(co_name, PyCodeObject, co_name);
    OFF(co_flags, PyCodeObject, co_flags);
    OFF(co_argcount, PyCodeObject, co_argcount);
    OFF(co_kwonlyargcount, PyCodeObject, co_kwonlyargcount);
    OFF(co_nlocals, PyCodeObject, co_nlocals);
    VAL(flag_optimized, CO_OPTIMIZED);
    VAL(flag_varargs, CO_VARARGS);
    VAL(flag_varkeywords, CO_VARKEYWORDS);
#if PY_VERSION_HEX >= 0x030b0000
    OFF(co_nlocalsplus, PyCodeObject, co_nlocalsplus);
    OFF(co_localsplusnames, PyCodeObject, co_localsplusnames);
    OFF(co_localspluskinds, PyCodeObject, co_localspluskinds);
    VAL(kind_local, CO_FAST_LOCAL);
    VAL(kind_cell, CO_FAST_CELL);
    VAL(kind_free, CO_FAST_FREE);
#else
    OFF(co_varnames, PyCodeObject, co_varnames);
    OFF(co_cellvars, PyCodeObject, co_cellvars);
    OFF(co_freevars, PyCodeObject, co_freevars);
#endif
#if PY_VERSION_HEX >= 0x030b0000
    OFF(fr_locals, FRAME, f_locals);
    OFF(fr_globals, FRAME, f_globals);
    OFF(fr_slots, FRAME, localsplus);
#else
    OFF(fr_locals, FRAME, f_locals);
    OFF(fr_globals, FRAME, f_globals);
    OFF(fr_slots, FRAME, f_localsplus);
#endif
#if PY_VERSION_HEX >= 0x030d0000
    /* The words of _Py_DebugOffsets that the target's own answer is compared with. */
#define WORD(name, field) VAL(name, offsetof(_Py_DebugOffsets, field) / 8)
    WORD(word_tp_name, type_object.tp_name);
    WORD(word_tp_flags, type_object.tp_flags);
    WORD(word_tuple_items, tuple_object.ob_item);
    WORD(word_list_items, list_object.ob_item);
    WORD(word_dict_keys, dict_object.ma_keys);
    WORD(word_dict_values, dict_object.ma_values);
    WORD(word_float_value, float_object.ob_fval);
    WORD(word_int_size, long_object.lv_tag);
    WORD(word_int_digits, long_object.ob_digit);
    WORD(word_argcount, code_object.argcount);
    WORD(word_localsplusnames, code_object.localsplusnames);
    WORD(word_localspluskinds, code_object.localspluskinds);
    WORD(word_slots, interpreter_frame.localsplus);
    VAL(words, sizeof(_Py_DebugOffsets) / 8);
#endif
    return 0;
}
"""

if __name__ == "__main__":
    gen_offsets.PROGRAM = PROGRAM
    gen_offsets.__doc__ = __doc__
    gen_offsets.main()
