/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kinds of objects, and pywalk_repr(). A kind with one shape, with a few pointers in it, is only a row of the table; a kind that needs more has a function.
 */
#include "object_render.h"

/* "<built-in function len>", "<built-in method append>" */
static void put_builtin(struct render *r, uint64_t addr, const struct object_type *t UNUSED) {
    uint64_t def = obj_pointer(r, addr + r->f->builtin_def);
    uint64_t text = obj_u64(r, def), self; /* PyMethodDef.ml_name comes first */
    char name[64];

    obj_c_text(r, text, name, sizeof name);
    self = obj_pointer(r, addr + r->f->builtin_self);
    obj_put(r, obj_error(r) == 0 && self != 0 && !obj_is(r, self, KIND_MODULE)
                   ? "<built-in method "
                   : "<built-in function ");
    obj_put_clean(r, name[0] != '\0' ? name : "?");
    obj_put(r, ">");
}

/* "<bound method NAME of TYPE object at 0x...>" */
static void put_method(struct render *r, uint64_t addr, const struct object_type *t) {
    uint64_t function = obj_pointer(r, addr + r->f->method_function), name = 0;
    uint64_t self = obj_pointer(r, addr + r->f->method_self);
    struct object_type its;

    if (obj_is(r, function, KIND_FUNCTION))
        name = obj_pointer(r, function + r->f->function_qualname);
    obj_put_shape(r, "<bound method %s", addr, t, &name);
    if (obj_type_of(r, self, &its))
        obj_put_shape(r, " of %T object at %@", self, &its, NULL);
    obj_error(r);
    obj_put(r, ">");
}

static void put_module(struct render *r, uint64_t addr, const struct object_type *t) {
    uint64_t name = 0;

    obj_dict_find(r, obj_pointer(r, addr + r->f->module_dict), "__name__", &name);
    obj_put_shape(r, "<module '%s'>", addr, t, &name);
}

static void put_type(struct render *r, uint64_t addr, const struct object_type *t UNUSED) {
    struct object_type its;

    if (obj_type_read(r, addr, &its))
        obj_put_shape(r, "<class '%T'>", addr, &its, NULL);
}

#define FIELD(name) offsetof(struct object_fields, name)

static const char generator[] = "<%n object %s at %@>";
static const struct object_row rows[] = {
    {"object", KIND_OBJECT, .put = obj_put_instance},
    {"NoneType", KIND_NONE, .shape = "None"},
    {"ellipsis", KIND_OTHER, .shape = "Ellipsis"},
    {"NotImplementedType", KIND_OTHER, .shape = "NotImplemented"},
    {"bool", KIND_OTHER, .put = obj_put_bool},
    {"int", KIND_INT, .value = true, .put = obj_put_int, .flag = FIELD(flag_long)},
    {"float", KIND_OTHER, .value = true, .put = obj_put_real},
    {"complex", KIND_OTHER, .value = true, .put = obj_put_imaginary},
    {"str", KIND_STR, .value = true, .put = obj_put_str, .flag = FIELD(flag_str)},
    {"bytes", KIND_OTHER, .value = true, .put = obj_put_byte_string, .flag = FIELD(flag_bytes)},
    {"bytearray", KIND_OTHER, .value = true, .put = obj_put_bytearray},
    {"list", KIND_LIST, .value = true, .put = obj_put_list, .flag = FIELD(flag_list)},
    {"tuple", KIND_TUPLE, .put = obj_put_tuple, .flag = FIELD(flag_tuple)},
    {"dict", KIND_DICT, .value = true, .put = obj_put_dict, .flag = FIELD(flag_dict)},
    {"set", KIND_SET, .put = obj_put_set},
    {"frozenset", KIND_SET, .put = obj_put_set},
    {"range", KIND_RANGE, .put = obj_put_range},
    {"slice", KIND_SLICE, .shape = "slice(%o, %o, %o)", .members = {"start", "stop", "step"}},
    {"cell", KIND_CELL, .shape = "<cell: %e>", .fields = {FIELD(cell_value)}},
    {"mappingproxy", KIND_OTHER, .shape = "mappingproxy(%o)", .fields = {FIELD(ob_head)}},
    {"staticmethod", KIND_OTHER, .shape = "<staticmethod(%o)>", .members = {"__func__"}},
    {"classmethod", KIND_OTHER, .shape = "<classmethod(%o)>", .members = {"__func__"}},
    {"function", KIND_FUNCTION, .shape = "<function %s at %@>",
     .fields = {FIELD(function_qualname)}},
    {"builtin_function_or_method", KIND_BUILTIN, .put = put_builtin},
    {"method", KIND_METHOD, .put = put_method},
    {"module", KIND_MODULE, .put = put_module},
    {"generator", KIND_GENERATOR, .shape = generator, .fields = {FIELD(generator_qualname)}},
    {"coroutine", KIND_GENERATOR, .shape = generator, .fields = {FIELD(generator_qualname)}},
    {"async_generator", KIND_GENERATOR, .shape = generator, .fields = {FIELD(generator_qualname)}},
    {"code", KIND_OTHER, .shape = "<code object %s at %@>", .fields = {FIELD(co_name)}},
    {"type", KIND_TYPE, .put = put_type, .flag = FIELD(flag_type)},
    {"BaseException", KIND_OTHER, .put = obj_put_exception, .flag = FIELD(flag_exception)},
    {"collections.deque", KIND_OTHER, .in_library = true, .put = obj_put_deque},
    {"datetime.datetime", KIND_OTHER, .in_library = true, .put = obj_put_datetime},
    {"datetime.date", KIND_OTHER, .in_library = true, .put = obj_put_datetime},
    {"datetime.time", KIND_OTHER, .in_library = true, .put = obj_put_datetime},
    {"datetime.timedelta", KIND_OTHER, .in_library = true, .put = obj_put_timedelta},
    {"datetime.timezone", KIND_OTHER, .in_library = true, .put = obj_put_timezone},
    {"zoneinfo.ZoneInfo", KIND_OTHER, .in_library = true, .shape = "zoneinfo.ZoneInfo(key=%o)",
     .members = {"key"}},
    {"decimal.Decimal", KIND_OTHER, .in_library = true, .put = obj_put_decimal},
    {"array.array", KIND_OTHER, .in_library = true, .put = obj_put_array},
    {"functools.partial", KIND_OTHER, .in_library = true, .put = obj_put_partial},
    {"re.Pattern", KIND_OTHER, .in_library = true, .put = obj_put_pattern},
    {"_sre.SRE_Pattern", KIND_OTHER, .in_library = true, .put = obj_put_pattern}, /* 3.6 */
    {"re.Match", KIND_OTHER, .in_library = true, .put = obj_put_match},
    {"_sre.SRE_Match", KIND_OTHER, .in_library = true, .put = obj_put_match}, /* 3.6 */
    {"memoryview", KIND_OTHER, .put = obj_put_memoryview},
    {"dict_keys", KIND_OTHER, .shape = "dict_keys(%o)", .fields = {FIELD(ob_head)}},
    {"dict_values", KIND_OTHER, .shape = "dict_values(%o)", .fields = {FIELD(ob_head)}},
    {"dict_items", KIND_OTHER, .shape = "dict_items(%o)", .fields = {FIELD(ob_head)}},
    {"weakref", KIND_OTHER, .shape = "<weakref to %o>", .fields = {FIELD(ob_head)}},
    {"weakref.ReferenceType", KIND_OTHER, .shape = "<weakref to %o>", .fields = {FIELD(ob_head)}},
    {"numpy.ndarray", KIND_NDARRAY, .put = obj_put_ndarray},
    {"numpy.", KIND_OBJECT, .put = obj_put_numpy_scalar},
    {"torch._C._TensorBase", KIND_OTHER, .put = obj_put_tensor}, /* to 2.0 */
    {"torch._C.TensorBase", KIND_OTHER, .put = obj_put_tensor},
    {"torch.dtype", KIND_OTHER, .put = obj_put_torch_named},
    {"torch.device", KIND_OTHER, .put = obj_put_torch_named},
};
#define ROWS (sizeof rows / sizeof *rows)

static int64_t field_of(const struct object_fields *f, unsigned field) {
    return *(const int64_t *)((const char *)f + field);
}

const struct object_row *obj_row_of_name(const char *name) {
    for (size_t i = 0; i < ROWS; i++) {
        size_t n = strlen(rows[i].name);
        bool begins = rows[i].name[n - 1] == '.';
        if (rows[i].flag == 0 && strncmp(rows[i].name, name, begins ? n : n + 1) == 0)
            return &rows[i];
    }
    return NULL;
}

const struct object_row *obj_row_of_flags(const struct object_fields *f, uint64_t flags) {
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].flag != 0 && (flags & field_of(f, rows[i].flag)) != 0)
            return &rows[i];
    return &rows[0];
}

void obj_put_shape(struct render *r, const char *shape, uint64_t addr, const struct object_type *t,
                   const uint64_t *values) {
    bool holds = strstr(shape, "%o") != NULL || strstr(shape, "%e") != NULL;
    bool entered = holds && obj_enter(r, addr);
    char text[160];

    for (const char *p = shape; *p != '\0' && !r->full; p++) {
        if (*p != '%') {
            obj_put_bytes(r, p, 1);
            continue;
        }
        switch (*++p) {
        case 'o':
        case 'e':
            if (*p == 'e' && *values == 0) {
                obj_put(r, "empty");
            } else if (entered) {
                obj_render(r, *values++);
            } else {
                obj_put(r, "...");
                p += strcspn(p, ")>") - 1;
            }
            break;
        case 's':
            obj_put_clean(r, obj_text(r, *values++, text, sizeof text) ? text : "?");
            obj_error(r);
            break;
        case 't':
        case 'T':
            obj_put_type(r, t, *p == 'T');
            break;
        case 'n':
            obj_put_clean(r, t->native);
            break;
        default:
            obj_put_format(r, "0x%lx", addr);
        }
    }
    if (entered)
        obj_leave(r);
}

static void put_by_shape(struct render *r, uint64_t addr, const struct object_type *t) {
    const struct object_row *row = t->row;
    uint64_t values[3] = {0};

    for (unsigned i = 0; i < 3; i++)
        if (row->members[i] != NULL)
            values[i] = obj_member_object(r, addr, t, row->members[i]);
        else if (row->fields[i] != 0)
            values[i] = obj_pointer(r, addr + field_of(r->f, row->fields[i]));
    if (r->rc == 0)
        obj_put_shape(r, row->shape, addr, t, values);
}

void obj_render(struct render *r, uint64_t addr) {
    struct object_type t;
    bool wrapped;

    if (r->full)
        return;
    if (addr == 0) {
        obj_put(r, "<NULL>");
    } else if (!obj_type_of(r, addr, &t)) {
        obj_put_error(r, addr);
    } else if (!t.row->value || !obj_put_enum(r, addr, &t)) {
        wrapped = t.row->value && (!t.exact || t.row->put == obj_put_bytearray);
        if (wrapped)
            obj_put_shape(r, "%t(", addr, &t, NULL);
        (t.row->put != NULL ? t.row->put : put_by_shape)(r, addr, &t);
        if (r->rc == -ENOTSUP && obj_error(r))
            obj_put_instance(r, addr, &t);
        obj_put_error(r, addr);
        if (wrapped)
            obj_put(r, ")");
    }
}

int pywalk_repr(const struct pywalk_objects *ob, uint64_t addr, const struct pywalk_limits *limits,
                char *buf, size_t n) {
    struct render r;

    if (n < 16)
        return -EINVAL;
    obj_begin(&r, ob, limits, buf, n);
    obj_render(&r, addr);
    return obj_end(&r);
}

int pywalk_type_name(const struct pywalk_objects *ob, uint64_t addr, char *buf, size_t n) {
    struct object_type t;
    struct render r;

    if (n < 16)
        return -EINVAL;
    obj_begin(&r, ob, NULL, buf, n);
    if (!obj_type_of(&r, addr, &t))
        return obj_error(&r);
    obj_put_type(&r, &t, true);
    return obj_end(&r);
}
