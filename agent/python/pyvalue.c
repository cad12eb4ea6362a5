/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/pyvalue.h"

#include <stdio.h>

#include "agent/python/capi.h"
#include "traces/float16.h"

static const char values_py[] = {
#include "agent/python/values.py.inc"
    0};

static CAPI_KEPT void *helpers; /* the namespace of values.py, once it is loaded */

void *pyvalue_helper(const char *name) {
    if (!helpers && !(helpers = capi_run(values_py)))
        return NULL;
    void *found = py.PyDict_GetItemString(helpers, name);
    if (!found && !py.PyErr_Occurred())
        py.PyErr_SetString(py.RuntimeError, name);
    return found;
}

const char *pyvalue_utf8(void *str, size_t *n) {
    ssize_t len = 0;
    const char *s = NULL;
    if (str && py.PyType_IsSubtype(capi_type(str), py.Str_Type) &&
        !(s = py.PyUnicode_AsUTF8AndSize(str, &len))) { /* lone surrogates */
        py.PyErr_Clear();
        s = "?";
        len = 1;
    }
    *n = s ? (size_t)len : 0;
    return s;
}

size_t pyvalue_text(void *str, char *buf, size_t n) {
    size_t len;
    const char *s = pyvalue_utf8(str, &len);
    len = s ? len : 1;
    if (len >= n) {
        len = n - 1;
        while (len && ((unsigned char)s[len] & 0xc0) == 0x80)
            len--;
    }
    memcpy(buf, s ? s : "?", len);
    buf[len] = 0;
    return len;
}

#define READ(name, type, of)                                                                       \
    if (!strcmp(dtype, name)) {                                                                    \
        type x;                                                                                    \
        memcpy(&x, at, sizeof x);                                                                  \
        v->kind = PYVALUE_REAL;                                                                    \
        v->number = of;                                                                            \
        return 0;                                                                                  \
    }
/* Reads a real number from memory; for a dtype that is not known here the value is the dtype's name. */
static int read_number(const void *at, const char *dtype, struct pyvalue *v) {
    READ("float32", float, (double)x)
    READ("float64", double, x)
    READ("bfloat16", uint16_t, bfloat16_value(x))
    READ("float16", uint16_t, float16_value(x))
    v->kind = PYVALUE_STR;
    v->n = strlen(strcpy(v->text, dtype));
    return 0;
}
#undef READ

/* Reads the number that (address, dtype) describes. */
static int read_tuple(void *pair, struct pyvalue *v) {
    void *address = py.PyTuple_GetItem(pair, 0), *dtype = py.PyTuple_GetItem(pair, 1);
    char name[32];
    uintptr_t at = address && dtype ? (uintptr_t)capi_int(address) : 0;
    if (!at && !py.PyErr_Occurred())
        capi_error(py.ValueError, "the tensor has no memory");
    if (py.PyErr_Occurred())
        return -1;
    pyvalue_text(dtype, name, sizeof name);
    return read_number((const void *)at, name, v);
}

/* Converts a value whose type needs no Python code. Returns 1, or 0 for any other type. */
static int take_simple(void *obj, struct pyvalue *v) {
    void *type = capi_type(obj);
    int overflow;
    if (obj == py.None) {
        v->kind = PYVALUE_NONE;
    } else if (type == py.Float_Type) {
        v->kind = PYVALUE_REAL;
        v->number = py.PyFloat_AsDouble(obj);
    } else if (type == py.Long_Type || type == py.Bool_Type) {
        long long whole = py.PyLong_AsLongLongAndOverflow(obj, &overflow);
        v->kind = PYVALUE_INT;
        v->number = (double)whole;
        if (whole > 1ll << 53 || whole < -(1ll << 53)) /* a double may not have all its digits */
            v->n = (size_t)snprintf(v->text, sizeof v->text, "%lld", whole);
        if (overflow) {
            v->kind = PYVALUE_REAL;
            v->number = py.PyFloat_AsDouble(obj);
            if (py.PyErr_Occurred()) {
                py.PyErr_Clear();
                v->number = overflow > 0 ? INFINITY : -INFINITY;
            }
        }
    } else if (type == py.Str_Type) {
        v->kind = PYVALUE_STR;
        v->n = pyvalue_text(obj, v->text, sizeof v->text);
    } else {
        return 0;
    }
    return 1;
}

int pyvalue_take(void *obj, struct pyvalue *v) {
    memset(v, 0, offsetof(struct pyvalue, text));
    if (take_simple(obj, v))
        return 0;
    CAPI_AUTO void *said = capi_call(pyvalue_helper("describe"), obj);
    if (!said)
        return -1;
    if (take_simple(said, v))
        return 0;
    if (capi_type(said) == py.Tuple_Type)
        return read_tuple(said, v); /* our caller holds `obj`, so its memory stays valid */
    v->kind = PYVALUE_COMING;
    v->coming = capi_ref(said);
    return 0;
}

int pyvalue_arrived(void *coming, struct pyvalue *v) {
    CAPI_AUTO void *pair = capi_call(pyvalue_helper("arrived"), coming);
    memset(v, 0, offsetof(struct pyvalue, text));
    if (pair == py.False)
        return 0;
    int rc = pair && (take_simple(pair, v) || !read_tuple(pair, v)) ? 1 : -1;
    py.Py_DecRef(coming);
    return rc;
}

void pyvalue_put(struct writer_value *to, const struct pyvalue *v) {
    to[0] = (struct writer_value){.u = v->kind};
    to[1] = (struct writer_value){.f = v->number};
    to[2] = value_bytes(v->text, v->n);
}
