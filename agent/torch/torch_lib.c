/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/torch_lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "agent/base/loaded.h"

struct torch_lib torch_lib;

int torch_lib_load(void) {
    struct torch_lib *t = &torch_lib;
    void *h;
    if (t->loaded)
        return t->loaded > 0 ? 0 : -ENOTSUP;
    if (loaded_find("libtorch_cpu.so", &h))
        return -ENOENT;
    const struct {
        const char *name;
        void *to;
        int needed;
    } names[] = {
        {"_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE", &t->add_callback, 1},
        {"_ZN2at14removeCallbackEm", &t->remove_callback, 1},
        {"_ZNK2at14RecordFunction4nameEv", &t->name, 1},
        {"_ZN2at15sequence_number4peekEv", &t->peek, 0},
        {"_ZN3c108GradMode10is_enabledEv", &t->gradients, 0},
        {"_ZN2at14RecordFunction15currentThreadIdEv", &t->thread_id, 0},
        {"_ZN2at14RecordFunction9_setAsyncEv", &t->set_async, 0},
        {"_ZN2at14RecordFunctionC1ENS_11RecordScopeE", &t->construct, 0},
        {"_ZN2at14RecordFunctionD1Ev", &t->destroy, 0},
        {"_ZN2at14RecordFunction6beforeEPKcl", &t->before, 0},
        {"_ZN2at14RecordFunction6beforeESt7variantIJSt17basic_string_viewIcSt11char_traitsIcEESt17reference_wrapperIKN3c1014FunctionSchemaEEEEl",
         &t->before2, 0},
    };
    t->loaded = 1;
    t->handle = h;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *p = dlsym(h, names[i].name);
        if (!p && names[i].needed)
            t->loaded = -1;
        memcpy(names[i].to, &p, sizeof p);
    }
    if (!t->before2) { /* 2.0 to about 2.7: c10's own view, pointer first */
        t->before2 = dlsym(
            h,
            "_ZN2at14RecordFunction6beforeESt7variantIJN3c1017basic_string_viewIcEESt17reference_"
            "wrapperIKNS2_14FunctionSchemaEEEEl");
        t->before2_order = 1;
    }
    return t->loaded > 0 ? 0 : -ENOTSUP;
}

void *torch_lib_symbol(const char *name) {
    return torch_lib.handle ? dlsym(torch_lib.handle, name) : NULL;
}

/* std::variant<view, reference>: two words and which of them it is. In memory, as its size demands. */
struct variant {
    uint64_t a, b;
    uint8_t index;
};

int torch_lib_before(void *rf, const char *name, int64_t sequence) {
    const struct torch_lib *t = &torch_lib;
    uint64_t p = (uint64_t)(uintptr_t)name, n = strlen(name);
    if (t->before) {
        t->before(rf, name, sequence);
    } else if (t->before2) {
        void (*before)(void *, struct variant, int64_t);
        struct variant v = {t->before2_order ? p : n, t->before2_order ? n : p, 0};
        memcpy(&before, &t->before2, sizeof before);
        before(rf, v, sequence);
    } else {
        return -ENOTSUP;
    }
    return 0;
}
