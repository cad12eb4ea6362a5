/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_layout.h - where CPython keeps the contents of its objects. Private to agent/pywalk.
 *
 * Values of one version, from object_table.inc, which gen_objects.py writes from the headers. Offsets are in bytes from
 * the start of their structure, flag_* and kind_* are masks. 0 means that the version has no such thing (for none of
 * those that a version may lack is 0 a possible value), but for values_capacity, values_first and values_order.
 * Str and code objects' other fields are in offsets.h.
 */
#ifndef PROBING_PYWALK_OBJECT_LAYOUT_H
#define PROBING_PYWALK_OBJECT_LAYOUT_H

#include "object.h"

struct object_fields {
    /* PyObject, PyVarObject, types */
    int64_t ob_head, ob_size;
    int64_t flag_heap, flag_long, flag_list, flag_tuple, flag_bytes, flag_str, flag_dict;
    int64_t flag_exception, flag_type, flag_managed_dict, flag_inline_values;
    int64_t tp_name, tp_basicsize, tp_itemsize, tp_flags, tp_members, tp_base, tp_dict;
    int64_t tp_dictoffset, ht_qualname, ht_cached_keys;
    int64_t member_size, member_name, member_type, member_offset, member_object; /* __slots__ */
    /* int_size: ob_size, or from 3.12 a tag, which is the number of digits shifted by int_tag_shift */
    int64_t int_size, int_digits, int_tag_shift, int_digit_bits, int_digit_size;
    int64_t str_wstr, str_wstr_length; /* to 3.11: strings that are not ready yet */
    int64_t float_value, complex_value, list_items, tuple_items, bytearray_start;
    int64_t set_used, set_mask, set_table, set_entry, set_key, set_hash;
    /* dict; its keys (keys_log2: to 3.10 the size itself) and their two kinds of entries; the values of a split one:
     * from values_first on; their count and order lie around them: see object_dict.c */
    int64_t dict_used, dict_keys, dict_values;
    int64_t keys_log2, keys_log2_bytes, keys_kind, keys_entries, keys_indices, keys_general;
    int64_t entry_unicode, entry_unicode_key, entry_unicode_value;
    int64_t entry_general, entry_general_key, entry_general_value;
    int64_t values_capacity, values_valid, values_first, values_size;
    int64_t values_order, values_order_next;
    /* an object's own: the dict's place, and the values' place (3.11) or what must be added to the dict's word to get
     * it (3.12), or the place
     * behind the object (3.13) */
    int64_t managed_dict, managed_values, managed_tagged, inline_values;
    int64_t exception_args, cell_value, function_code, function_globals, function_qualname;
    int64_t method_function, method_self, builtin_def, builtin_self, generator_qualname;
    int64_t module_dict, slice_start, range_start;
    /* datetime: what says whether there is a zone, then the numbers */
    int64_t date_aware, date_size, time_zone, time_size, datetime_zone, datetime_size;
    int64_t delta_days, delta_size;
    int64_t co_name, co_flags, co_argcount, co_kwonlyargcount, co_nlocals;
    int64_t flag_optimized, flag_varargs, flag_varkeywords;
    int64_t co_nlocalsplus, co_localsplusnames, co_localspluskinds; /* 3.11+ */
    int64_t kind_local, kind_cell, kind_free;
    int64_t co_varnames, co_cellvars, co_freevars; /* to 3.10 */
    int64_t fr_locals, fr_globals, fr_slots;
    /* 3.13+: the words of _Py_DebugOffsets that must agree */
    int64_t word_tp_name, word_tp_flags, word_tuple_items, word_list_items;
    int64_t word_dict_keys, word_dict_values, word_float_value, word_int_size, word_int_digits;
    int64_t word_argcount, word_localsplusnames, word_localspluskinds, word_slots, words;
};

#endif
