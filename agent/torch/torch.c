/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/torch.h"

#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/memory.h"
#include "agent/base/values.h"
#include "agent/core/meta.h"
#include "agent/core/python.h"
#include "agent/core/settings.h"
#include "agent/python/capi.h"
#include "agent/python/gil.h"
#include "agent/torch/step_memory.h"
#include "agent/torch/torch_back.h"
#include "agent/torch/torch_cuda.h"
#include "agent/torch/torch_lib.h"
#include "agent/torch/torch_name.h"
#include "agent/torch/torch_node.h"
#include "agent/torch/torch_observe.h"
#include "agent/torch/torch_slot.h"
#include "agent/torch/torch_step.h"
#include "agent/torch/torch_thread.h"
#include "traces/torch_setting.h"

#define POLL_NS     20000000u /* while torch is being imported */
#define LOOK_NS     200000000u
#define PATIENCE_NS 1000000000u /* a main thread that does not answer so long is waiting in C */
#define CLOSE_MS    2000
#define MAX_LINKS   20000
#define WHY         160

/* What the main thread is to do, and what came of it. */
enum ask { ASK_NOTHING, ASK_INSTALL, ASK_REMOVE, ASK_AGAIN };

static struct {
    int mapped;  /* libtorch_cpu.so is there */
    int failed;  /* it will not work in this process; said in a note */
    int told;    /* the note of this recording is written */
    int changed; /* (a) the setting was changed */
    struct torch_setting setting;
    uint64_t next_look, next_ask, asked_at;
    uint64_t wish;      /* ns until the next round, 0: no wish */
    uint32_t ask;       /* (a) enum ask */
    uint32_t pending;   /* (a) a call is queued and has not run */
    uint32_t installed; /* (a) */
    int32_t result;     /* (a) of the last attempt */
    char why[WHY];      /* written before `result` */
    char back_why[WHY];
} t;

/* Looks through the loader's list from outside, without its lock. */
static int is_mapped(void) {
    struct link_map m;
    char name[4096];
    uint64_t at = (uint64_t)(uintptr_t)__atomic_load_n(&_r_debug.r_map, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; at && i < MAX_LINKS; i++) {
        if (memory_read_self(at, &m, sizeof m))
            return 0;
        uint64_t text = (uint64_t)(uintptr_t)m.l_name;
        size_t room = sizeof name - 1 - text % 4096; /* to the end of the page; names are short */
        size_t n = room > 64 ? room : 200;
        if (text && !memory_read_self(text, name, n)) {
            name[n] = 0;
            const char *base = strrchr(name, '/');
            if (base && !strncmp(base, "/libtorch_cpu.so", 16))
                return 1;
        }
        at = (uint64_t)(uintptr_t)m.l_next;
    }
    return 0;
}

/* On the main thread between two instructions of Python, or on a helper's; with the GIL. */
static int on_main_thread(void *unused) {
    (void)unused;
    uint32_t ask = __atomic_exchange_n(&t.ask, ASK_NOTHING, __ATOMIC_ACQ_REL);
    if (ask == ASK_INSTALL && !t.installed) {
        int err;
        t.why[0] = 0;
        err = slots_install(t.why, sizeof t.why);
        __atomic_store_n(&t.installed, err == 0, __ATOMIC_RELEASE);
        __atomic_store_n(&t.result, err, __ATOMIC_RELEASE);
    } else if (ask == ASK_AGAIN && t.installed) {
        slots_again();
    } else if (ask == ASK_REMOVE && t.installed) {
        slots_remove();
        __atomic_store_n(&t.installed, 0, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&t.pending, 0, __ATOMIC_RELEASE);
    return 0;
}

static void on_our_thread(void *unused) {
    on_main_thread(unused);
}

static void ask(enum ask what) {
    uint64_t now = values_now();
    if (!capi_usable()) /* a program at its end: Py_AddPendingCall() would follow a null pointer */
        return;
    __atomic_store_n(&t.ask, what, __ATOMIC_RELEASE);
    if (!__atomic_exchange_n(&t.pending, 1, __ATOMIC_ACQ_REL)) {
        t.asked_at = now;
        if (py.Py_AddPendingCall(on_main_thread, NULL))
            __atomic_store_n(&t.pending, 0, __ATOMIC_RELEASE); /* the queue is full: next time */
    } else if (now - t.asked_at > PATIENCE_NS) {
        t.asked_at = now;
        gil_ask(on_our_thread, NULL,
                NULL); /* the main thread waits in C, perhaps for one that trains */
    }
}

static void fail(struct writer *w, const char *text) {
    t.failed = 1;
    meta_note(w, 1, "torch", "%s", text);
}

/* The library's part: callbacks. */
static void start_library(struct writer *w) {
    int err = torch_lib_load();
    if (!err)
        err = capi_load(NULL);
    if (err == -ENOENT || err == -EAGAIN) {
        t.mapped = 0; /* on its way */
        return;
    }
    if (err) {
        fail(w, "this PyTorch or this Python is not known: nothing of torch is recorded");
        return;
    }
    step_start();
    if (t.setting.backward) {
        back_start(t.back_why, sizeof t.back_why);
        if (t.back_why[0])
            meta_note(w, 1, "torch", "%s", t.back_why);
    }
    if (!t.setting.backward)
        back_stop();
    observe_start(back_on && !nodes_proven());
}

static void read_setting(void) {
    char text[SETTING_TEXT_MAX], why[SETTING_WHY];
    settings_text(SETTING_torch_profiling, text, sizeof text);
    if (torch_setting_parse(text, &t.setting, why, sizeof why))
        t.setting.on = 0; /* it was checked before it was stored */
    step_rate(t.setting.rate);
    node_layer_rate(t.setting.layer_rate);
    cuda_setting(t.setting.on ? t.setting.cuda : TORCH_NONE,
                 t.setting.on ? t.setting.memory : TORCH_NONE);
}

static void setting_changed(void) {
    __atomic_store_n(&t.changed, 1, __ATOMIC_RELEASE);
}

static void tell(struct writer *w) {
    if (t.told || !t.installed)
        return;
    t.told = 1;
    meta_note(w, 0, "torch", "recording: slots of %u classes, backward of modules %s",
              slots_count(), back_on ? "on" : "off");
    if (t.why[0])
        meta_note(w, 1, "torch", "%s", t.why);
}

static void turn_off(void) {
    step_stop();
    back_stop();
    observe_stop();
    if (t.installed)
        ask(ASK_REMOVE);
}

static void apply_change(struct writer *w, struct live *live) {
    int was = t.setting.on, back = t.setting.backward;
    read_setting();
    if (was && !t.setting.on) {
        torch_threads_close(CLOSE_MS);
        turn_off();
    } else if (!was && t.setting.on) {
        __atomic_store_n(&t.ask, ASK_NOTHING,
                         __ATOMIC_RELEASE); /* a removal that did not come to pass */
        torch_threads_open(live);
        step_reset(0);
        t.mapped = t.told = 0;
        t.next_look = 0;
    } else if (back != t.setting.backward && t.mapped) {
        start_library(w);
    }
}

static void begin(struct writer *w) {
    read_setting();
    settings_watch(SETTING_torch_profiling, setting_changed);
    t.mapped = t.failed = t.told = t.changed = 0;
    t.next_look = 0;
    cuda_open();
    step_memory_open();
    step_reset(0);
    if (t.setting.on)
        torch_threads_open(writer_live(w));
}

/* ns until the next one is wanted, 0: no wish. */
static uint64_t do_round(struct writer *w, uint64_t now) {
    if (__atomic_exchange_n(&t.changed, 0, __ATOMIC_ACQ_REL))
        apply_change(w, writer_live(w));
    if (!t.setting.on || t.failed)
        return 0;
    torch_threads_round();
    if (!t.mapped) {
        if (now < t.next_look)
            return 0;
        t.next_look = now + LOOK_NS;
        if (!is_mapped())
            return 0;
        t.mapped = 1;
        start_library(w);
        if (t.failed || !t.mapped)
            return POLL_NS;
        t.result = -EAGAIN;
        t.next_ask = 0;
    }
    if (back_round())
        meta_note(w, 0, "torch", "autograd's nodes are seen where the engine calls them");
    if (t.installed) {
        tell(w);
        if (slots_lost())
            ask(ASK_AGAIN);
        return cuda_round(w, now, 1);
    }
    int err = __atomic_load_n(&t.result, __ATOMIC_ACQUIRE);
    if (err != -EAGAIN) {
        fail(w, t.why[0] ? t.why : "nn.Module is not as expected");
        return 0;
    }
    if (now >= t.next_ask) {
        ask(ASK_INSTALL);
        t.next_ask = now + POLL_NS;
    }
    return POLL_NS;
}

static void round_of(struct writer *w, uint64_t now) {
    t.wish = do_round(w, now);
}

static uint64_t wish(uint64_t now) {
    (void)now;
    return t.wish ? t.wish : UINT64_MAX;
}

/* The live file goes: nobody writes any more. */
static void quit(struct writer *w, int stays) {
    settings_watch(SETTING_torch_profiling, NULL);
    cuda_close(w);
    step_memory_close();
    if (torch_threads_close(CLOSE_MS) && w)
        writer_leave_live(w);
    if (stays && t.mapped && !t.failed)
        turn_off();
}

static void child(int whole) {
    (void)whole;
    torch_lib_after_fork();
    cuda_after_fork();
    torch_threads_after_fork();
    step_reset(1);
    t.pending = 0;
    t.ask = ASK_NOTHING;
}

const struct agent_part torch_part = {
    .name = "torch",
    .open = begin,
    .round = round_of,
    .wait = wish,
    .quit = quit,
    .child = child,
};
