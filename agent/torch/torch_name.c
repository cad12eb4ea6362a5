/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/torch_name.h"

#include <stdio.h>

#include "agent/base/known.h"
#include "agent/core/producer.h"
#include "agent/torch/torch_frame.h"
#include "traces/map.h"

#define NAME_MAX_LEN 512
#define WALK_MAX     65536u /* modules visited in one walk */
#define NEAR         256u
#define ROOTS        64u
#define NAMES_MAX    (1u << 20)
#define MILLION      1000000u

struct name {
    char *text, *type;
    uint64_t key, trained;
};

struct root {
    void *weak;
    uint32_t name; /* index */
    uint32_t number;
    char type[64];
};

struct hop {
    void *module;
    uint32_t from;
    const char *key;
};

struct node **node_table;
uint32_t node_mask;
static uint32_t nodes, serials;
static struct name *names; /* index = id - 1 */
static uint32_t nnames;
static struct map name_index; /* key: index + 1 */
static struct root roots[ROOTS];
static uint32_t nroots;
static struct hop *hops;
static uint32_t layer_rate = MILLION;

/* ---- texts ---- */

static uint64_t name_key(const char *text, const char *type) {
    uint64_t key = known_text(known_text(1, text) + 1, type);
    return key ? key : 1;
}

/* The index of a name, or UINT32_MAX. */
static uint32_t intern(const char *text, const char *type) {
    uint64_t key = name_key(text, type);
    uint32_t at = map_find(&name_index, key);
    if (at)
        return at - 1;
    struct name n = {strdup(text), strdup(type), key, 0};
    if (nnames == NAMES_MAX || array_grow(&names, nnames, sizeof *names) || !n.text || !n.type ||
        map_put(&name_index, key, nnames + 1)) {
        free(n.text);
        free(n.type);
        return UINT32_MAX;
    }
    names[nnames] = n;
    return nnames++;
}

/* ---- what Python knows ---- */

/* The attribute of that name in the module's own __dict__, borrowed, or NULL. */
static void *own(void *self, const char *name) {
    CAPI_AUTO void *d = py.PyObject_GenericGetDict(self, NULL);
    void *m = d ? py.PyDict_GetItemString(d, name) : NULL;
    py.PyErr_Clear();
    return m;
}

/* Its _modules or _parameters, borrowed, or NULL. */
static void *dict_of(void *self, const char *name) {
    void *m = own(self, name);
    return m && py.PyType_IsSubtype(capi_type(m), py.Dict_Type) ? m : NULL;
}

static const char *short_name(void *type) {
    const char *s = capi_type_name(type), *dot = strrchr(s, '.');
    return dot ? dot + 1 : s;
}

/* The class as its author wrote it: fully_shard() puts FSDPNet over Net, scripting puts RecursiveScriptModule. */
static void type_name(void *self, char *buf, size_t n) {
    void *type = capi_type(self);
    CAPI_AUTO void *o = NULL;
    const char *s = short_name(type), *inner = NULL;
    if (!strncmp(s, "FSDP", 4) && (o = capi_attr(type, "__bases__")) && py.PyTuple_Size(o) > 1 &&
        !strcmp(short_name(py.PyTuple_GetItem(o, 0)), "FSDPModule"))
        inner = short_name(py.PyTuple_GetItem(o, 1));
    else if (strstr(s, "ScriptModule") || strstr(s, "TracedModule"))
        inner = (o = capi_attr(self, "original_name")) ? capi_utf8(o) : NULL;
    snprintf(buf, n, "%s", inner ? inner : s);
    py.PyErr_Clear();
}

/* Whether `key` is left out of names, because it holds the module that `holder` wraps. */
static int is_wrapped(void *holder, const char *key) {
    if (!strcmp(key, "module")) {
        const char *s = short_name(capi_type(holder));
        return !strcmp(s, "DistributedDataParallel") || !strcmp(s, "DataParallel") ||
               !strcmp(s, "FullyShardedDataParallel") || !strcmp(s, "AveragedModel");
    }
    return !strcmp(key, "_orig_mod") || !strcmp(key, "_fsdp_wrapped_module") ||
           !strcmp(key, "_checkpoint_wrapped_module");
}

/* The module that this one wraps, borrowed; NULL: it is no wrapper. */
static void *wrapped(void *self) {
    void *m = dict_of(self, "_modules"), *key, *value;
    ssize_t pos = 0;
    while (m && py.PyDict_Next(m, &pos, &key, &value)) {
        const char *k = capi_type(key) == py.Str_Type ? capi_utf8(key) : NULL;
        if (k && value != py.None && is_wrapped(self, k))
            return value;
    }
    return NULL;
}

uint64_t *node_trained(const struct node *n) {
    return &names[n->model].trained;
}

int node_evaluates(const struct node *n) {
    void *self = n->self; /* for a compiled module the inner one has it */
    while (!own(self, "training") && wrapped(self))
        self = wrapped(self);
    void *c = own(self, "_c"); /* and for a scripted one its C++ object */
    CAPI_AUTO void *said = c ? py.PyObject_CallMethod(c, "getattr", "s", "training") : NULL;
    py.PyErr_Clear();
    return (said ? said : own(self, "training")) == py.False;
}

/* torch.compile's wrapper stands for the module that it wraps, whose own call is not seen. */
static int is_transparent(void *self) {
    return !strcmp(short_name(capi_type(self)), "OptimizedModule");
}

static int is_bare(void *self) {
    void *m = dict_of(self, "_modules"), *w = dict_of(self, "_parameters"), *key, *value;
    ssize_t pos = 0;
    return m && !py.PyDict_Next(m, &pos, &key, &value) && /* a scripted module has no such dict */
           (!w || !py.PyDict_Next(w, &pos, &key, &value));
}

/* ---- walking ---- */

static size_t put_path(char *buf, size_t n, uint32_t at) {
    size_t len = 0;
    if (hops[at].from != UINT32_MAX)
        len = put_path(buf, n, hops[at].from);
    if (hops[at].key && !is_wrapped(hops[hops[at].from].module, hops[at].key) && len < n)
        len += (size_t)snprintf(buf + len, n - len, ".%s", hops[at].key);
    return len < n ? len : n - 1;
}

/* Finds the shortest path from `from` down to `target`: returns 1 and writes ".layers.3" to buf, or 0. Looks at `most` modules at most. */
static int walk(void *from, const void *target, uint32_t most, char *buf, size_t n) {
    uint32_t have = 1;
    if (!hops && !(hops = malloc(WALK_MAX * sizeof *hops)))
        return 0;
    hops[0] = (struct hop){from, UINT32_MAX, NULL};
    for (uint32_t i = 0; i < have; i++) {
        void *m = dict_of(hops[i].module, "_modules"), *key, *value;
        ssize_t pos = 0;
        while (m && py.PyDict_Next(m, &pos, &key, &value)) {
            if (value == py.None || have == most || capi_type(key) != py.Str_Type)
                continue;
            const char *k = capi_utf8(key);
            if (!k)
                continue;
            hops[have] = (struct hop){value, i, k};
            if (value == target) {
                buf[0] = 0;
                put_path(buf, n, have);
                return 1;
            }
            have++;
        }
    }
    return 0;
}

int node_holds(const struct node *n, const void *self) {
    char path[NAME_MAX_LEN];
    return self == n->self || walk(n->self, self, WALK_MAX, path, sizeof path);
}

/* ---- roots ---- */

static struct root *root_of(const void *self) {
    for (uint32_t i = 0; i < nroots; i++)
        if (capi_weak(roots[i].weak) == self)
            return &roots[i];
    return NULL;
}

/* The name of a module as a root: its class, or Net#2 when another Net lives. */
static uint32_t root_name(void *self) {
    struct root *r = root_of(self), *place = NULL;
    char text[96];
    uint32_t number = 1;
    if (r)
        return r->name;
    struct root made = {.weak = NULL};
    type_name(self, made.type, sizeof made.type);
    for (uint32_t i = 0; i < nroots; i++) {
        if (capi_weak(roots[i].weak) == py.None) {
            place = place ? place : &roots[i];
        } else if (!strcmp(roots[i].type, made.type) && roots[i].number == number) {
            number++;
            i = UINT32_MAX; /* from the beginning: numbers are in no order */
        }
    }
    snprintf(text, sizeof text, number > 1 ? "%s#%u" : "%s", made.type, number);
    made.number = number;
    made.name = intern(text, made.type);
    made.weak = place || nroots < ROOTS ? py.PyWeakref_NewRef(self, NULL) : NULL;
    if (made.weak) {
        place = place ? place : &roots[nroots++];
        capi_unref(place->weak);
        *place = made;
    }
    py.PyErr_Clear();
    return made.name;
}

/* ---- nodes ---- */

static int under(uint32_t base, void *from, void *self, uint32_t most, char *text, size_t n) {
    size_t len = (size_t)snprintf(text, n, "%s", names[base].text);
    return len < n && walk(from, self, most, text + len, n - len);
}

/* Whether a module like this one was searched for in vain before: a program that creates a module for each call would make us walk the whole model each
 * time. Now and then it is walked all the same. */
static int is_stray(const struct node *up, const char *type) {
    static uint32_t turn;
    char text[NAME_MAX_LEN];
    if (++turn % 64 == 0)
        return 0;
    if (up) {
        snprintf(text, sizeof text, "%s.(%s)", names[up->base].text, type);
        return map_find(&name_index, name_key(text, type)) != 0;
    }
    for (uint32_t i = 0; i < nroots; i++)
        if (capi_weak(roots[i].weak) == py.None && !strcmp(roots[i].type, type))
            return 1;
    return 0;
}

/* Returns 1 + the index of the root that the module is a part of, and its name there in text; 0: it is a part of none. */
static uint32_t under_roots(void *self, char *text, size_t n) {
    for (uint32_t i = 0; i < nroots; i++) {
        void *from = capi_weak(roots[i].weak);
        if (from != py.None && from != self && under(roots[i].name, from, self, WALK_MAX, text, n))
            return i + 1;
    }
    return 0;
}

/* Fills in name and base. 0, or -1: no memory. */
static int name_node(struct torch_thread *l, struct node *up, struct node *n) {
    char text[NAME_MAX_LEN], type[64];
    void *inner = wrapped(n->self), *self = n->self;
    type_name(inner && is_transparent(self) ? inner : self, type, sizeof type);
    int stray = is_stray(up, type), wraps = inner && !is_transparent(self);
    uint32_t found =
        up ? under(up->base, up->self, self, stray ? NEAR : WALK_MAX, text, sizeof text) ||
                 (!stray &&
                  ((l->root && l->root != up &&
                    under(l->root->base, l->root->self, self, WALK_MAX, text, sizeof text)) ||
                   under_roots(self, text, sizeof text)))
           : (stray || root_of(self) ? 0 : under_roots(self, text, sizeof text));
    if (up && !found)
        snprintf(text, sizeof text, "%s.(%s)", names[up->base].text, type);
    if (up || found) {
        n->base = intern(text, type);
    } else {
        void *innermost = self;
        for (int i = 0; inner && i < 8; i++, inner = wrapped(inner))
            innermost = inner;
        n->base = root_name(innermost);
    }
    n->name = n->base;
    if (wraps && n->base != UINT32_MAX) { /* a wrapper within the tree has its place there */
        const char *at = up || found ? names[n->base].text : "";
        snprintf(text, sizeof text, "%s%s%s", at, *at ? "." : "", type);
        n->name = intern(text, type);
    }
    n->whole = up ? NULL : frame_whole();
    n->part = !up && found && !n->whole;
    n->model = !up && found ? roots[found - 1].name : n->base;
    n->whole = n->part ? capi_weak(roots[found - 1].weak) : n->whole;
    return n->name == UINT32_MAX ? -1 : 0;
}

static void insert(struct node **table, uint32_t mask, struct node *n) {
    uint32_t i = node_hash(n->up, n->self) & mask;
    while (table[i])
        i = (i + 1) & mask;
    table[i] = n;
}

/* Makes the table larger, and frees the nodes whose modules are gone. */
static int grow_table(void) {
    uint32_t live = 0, cap = 1024;
    for (uint32_t i = 0; node_table && i <= node_mask; i++)
        live += node_table[i] && capi_weak(node_table[i]->weak) != py.None;
    while (cap < live * 4)
        cap *= 2;
    struct node **table = calloc(cap, sizeof *table);
    if (!table)
        return -1;
    for (uint32_t i = 0; node_table && i <= node_mask; i++) {
        struct node *n = node_table[i];
        if (n && capi_weak(n->weak) != py.None) {
            insert(table, cap - 1, n);
        } else if (n) {
            py.Py_DecRef(n->weak);
            free(n);
        }
    }
    free(node_table);
    node_table = table;
    node_mask = cap - 1;
    nodes = live;
    return 0;
}

struct node *node_make(struct torch_thread *l, struct node *up, void *self) {
    struct node made = {.self = self, .up = up ? up->serial : 0}, *n;
    if ((!node_table || nodes * 2 > node_mask) && grow_table())
        return NULL;
    made.weak = py.PyWeakref_NewRef(self, NULL);
    if (!made.weak || name_node(l, up, &made)) {
        capi_unref(made.weak);
        py.PyErr_Clear();
        return NULL;
    }
    if (++serials == 0)
        serials = 1;
    made.serial = serials;
    made.bare = is_bare(self);
    made.id = made.name + 1;
    made.quiet = up && layer_rate < MILLION && names[made.name].key % MILLION >= layer_rate;
    if ((n = node_of(made.up, self, py.None))) { /* another module was at this address */
        py.Py_DecRef(n->weak);
        *n = made;
        return n;
    }
    if (!(n = malloc(sizeof *n))) {
        py.Py_DecRef(made.weak);
        return NULL;
    }
    *n = made;
    insert(node_table, node_mask, n);
    nodes++;
    return n;
}

int node_write(struct node *n, uint32_t edition) {
    const struct name *name = &names[n->name];
    uint64_t key = known_mix(name->key, edition);
    if (PRODUCER_EMIT(torch_name, .key = key ? key : 1, .number = n->id,
                      .name = value_text(name->text), .type = value_text(name->type),
                      .model = !n->bare))
        return 0;
    n->edition = edition;
    return 1;
}

void node_layer_rate(uint32_t millionths) {
    layer_rate = millionths;
}
