/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.c - training telemetry of PyTorch: modules' forward and backward, steps, data loading.
 *
 * A process that never maps libtorch_cpu.so pays a walk along the loader's list five times a second, and nothing else. Once it is
 * mapped, the main thread is made to check (gil_pending: between two bytecodes, with the GIL) every 20 ms
 * whether nn.Module is there, and then to patch the classes (torch_slot.h). The RecordFunction callbacks need no Python (torch_step.h, torch_back.h). The GPU's side: torch_cuda.h.
 * What is written, and how: torch_thread.h. When anything is not as expected, that part stays off and one note says why.
 */

#include "agent/base/loaded.h"
#include "agent/core/meta.h"
#include "agent/core/part.h"
#include "agent/core/settings.h"
#include "agent/python/capi.h"
#include "agent/python/gil.h"
#include "agent/torch/torch_back.h"
#include "agent/torch/torch_cuda.h"
#include "agent/torch/torch_lib.h"
#include "agent/torch/torch_name.h"
#include "agent/torch/torch_slot.h"
#include "agent/torch/torch_step.h"
#include "agent/torch/torch_thread.h"
#include "traces/torch_setting.h"

#define POLL_NS  20000000u /* while torch is being imported */
#define CHECK_NS 200000000u
#define CLOSE_MS 2000
#define WHY      160

/* What the main thread is asked to do. */
enum ask { ASK_NOTHING, ASK_INSTALL, ASK_REMOVE, ASK_AGAIN };

static struct {
    int mapped; /* libtorch_cpu.so is there */
    int failed; /* recording will not work in this process; a note says so */
    int noted;  /* the note of this recording is written */
    struct torch_setting setting;
    uint32_t version; /* of the setting, when it was read */
    uint64_t next_check, next_ask;
    uint64_t wish;      /* ns until the next round, 0: no wish */
    uint32_t ask;       /* (a) enum ask */
    uint32_t installed; /* (a) */
    int32_t result;     /* (a) of the last attempt to install */
    char why[WHY];      /* written before `result` */
    uint64_t handle;    /* of the callback, 0: not registered */
    int nodes;          /* it is for autograd's nodes, too */
} t;

/* Does what was asked for. With the GIL, mostly in the main thread between two bytecodes (gil_pending). */
static void on_main_thread(void) {
    uint32_t ask = __atomic_exchange_n(&t.ask, ASK_NOTHING, __ATOMIC_ACQ_REL);
    if (ask == ASK_INSTALL && !t.installed) {
        t.why[0] = 0;
        int err = slots_install(t.why, sizeof t.why);
        __atomic_store_n(&t.installed, err == 0, __ATOMIC_RELEASE);
        __atomic_store_n(&t.result, err, __ATOMIC_RELEASE);
    } else if (ask == ASK_AGAIN && t.installed) {
        slots_again();
    } else if (ask == ASK_REMOVE && t.installed) {
        slots_remove();
        __atomic_store_n(&t.installed, 0, __ATOMIC_RELEASE);
    }
}

static void ask(enum ask what) {
    __atomic_store_n(&t.ask, what, __ATOMIC_RELEASE);
    gil_pending(on_main_thread);
}

/* Our one callback of at::RecordFunction, for what the program and PyTorch mark by name, and for autograd's nodes until they are seen without it (torch_back.h).
 * There is only one, because the engine builds its list of callbacks twice for each node. `sret` receives a unique_ptr, which the end callback is given. */
static void *on_begin(void *sret, const void *rf) {
    void *mark = back_begins(rf) ? NULL : step_mark_begins(torch_lib.name(rf));
    memcpy(sret, &mark, sizeof mark);
    return sret;
}

/* Registers it. nodes: 0: for marks only. */
static void observe(int nodes) {
    struct torch_callback cb = {.start = on_begin, .end = step_mark_ends, .probability = 1};
    uint64_t old = t.handle;
    if (old && t.nodes == nodes)
        return;
    cb.scopes[TORCH_SCOPE_USER] = 1;
    cb.scopes[TORCH_SCOPE_BACKWARD] = nodes != 0;
    t.handle = 0;
    t.nodes = nodes;
    torch_lib_add(&t.handle, cb);
    torch_lib_remove(&old); /* only now: no mark is missed, one seen twice counts once (depth) */
}

static void fail(struct writer *w, const char *text) {
    t.failed = 1;
    meta_note(w, 1, "torch", "%s", text);
}

/* Starts what works by the library alone: callbacks. */
static void start_library(struct writer *w) {
    int err = torch_lib_load();
    if (!err)
        err = capi_load(NULL);
    if (err == -ENOENT || err == -EAGAIN || (!err && !capi_usable())) {
        t.mapped = 0; /* still being loaded, or Python is finalising and torch is destroyed next */
        return;
    }
    if (err) {
        fail(w, "this PyTorch or this Python is not known: nothing of torch is recorded");
        return;
    }
    if (t.setting.backward) {
        char why[WHY];
        back_start(why, sizeof why);
        if (why[0])
            meta_note(w, 1, "torch", "%s", why);
    } else {
        back_stop();
    }
    observe(back_on && !back_proven());
}

static void read_setting(void) {
    char text[SETTING_TEXT_MAX], why[SETTING_WHY];
    t.version = settings_version(SETTING_torch_profiling);
    settings_text(SETTING_torch_profiling, text, sizeof text);
    if (torch_setting_parse(text, &t.setting, why, sizeof why))
        t.setting.on = 0; /* it was checked before it was stored */
    step_rate(t.setting.rate);
    node_layer_rate(t.setting.layer_rate);
    cuda_setting(t.setting.on ? t.setting.cuda : TORCH_NONE,
                 t.setting.on ? t.setting.memory : TORCH_NONE);
}

/* Writes notes on the outcome, each once: called in each round, and at the end for a program that ends before the next round. */
static void say(struct writer *w) {
    int err = __atomic_load_n(&t.result, __ATOMIC_ACQUIRE);
    if (!t.setting.on || t.failed || !t.mapped)
        return;
    if (t.installed && !t.noted) {
        t.noted = 1;
        meta_note(w, 0, "torch", "recording: slots of %u classes, backward of modules %s",
                  slots_count(), back_on ? "on" : "off");
        if (t.why[0])
            meta_note(w, 1, "torch", "%s", t.why);
    } else if (!t.installed && err != -EAGAIN) {
        fail(w, t.why[0] ? t.why : "nn.Module is not as expected");
    }
    int first = back_round();
    if (back_proven())
        observe(0);
    if (first)
        meta_note(w, 0, "torch", "autograd's nodes are seen where the engine calls them");
}

static void turn_off(void) {
    back_stop();
    torch_lib_remove(&t.handle);
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
        __atomic_store_n(&t.ask, ASK_NOTHING, __ATOMIC_RELEASE); /* cancels a removal */
        torch_threads_open(live);
        step_reset(0);
        t.next_check = t.mapped = t.noted = 0;
    } else if (back != t.setting.backward && t.mapped) {
        start_library(w);
    }
}

static void begin(struct writer *w) {
    read_setting();
    t.next_check = t.mapped = t.failed = t.noted = 0;
    cuda_open();
    step_reset(0);
    if (t.setting.on)
        torch_threads_open(writer_live(w));
}

/* Returns ns until the next round is wanted, 0: no wish. */
static uint64_t do_round(struct writer *w, uint64_t now) {
    if (t.version != settings_version(SETTING_torch_profiling))
        apply_change(w, writer_live(w));
    if (!t.setting.on || t.failed)
        return 0;
    torch_threads_round();
    if (!t.mapped) {
        if (now < t.next_check)
            return 0;
        t.next_check = now + CHECK_NS;
        if (loaded_find("libtorch_cpu.so", NULL))
            return 0;
        t.mapped = 1;
        start_library(w);
        if (t.failed || !t.mapped)
            return POLL_NS;
        t.result = -EAGAIN;
        t.next_ask = 0;
    }
    say(w);
    if (t.installed) {
        if (slots_lost())
            ask(ASK_AGAIN);
        return cuda_round(w, now);
    }
    if (!t.failed && now >= t.next_ask) {
        ask(ASK_INSTALL);
        t.next_ask = now + POLL_NS;
    }
    return t.failed ? 0 : POLL_NS;
}

static void round_of(struct writer *w, uint64_t now) {
    t.wish = do_round(w, now);
}

static uint64_t wish(uint64_t now UNUSED) {
    return t.wish ? t.wish : UINT64_MAX;
}

/* The live file is about to go: ends all writing. */
static void quit(struct writer *w, int stays) {
    int works = t.mapped && !t.failed;
    if (w)
        say(w);
    cuda_close(w);
    if (torch_threads_close(CLOSE_MS) && w)
        writer_leave_live(w);
    if (stays && works)
        turn_off();
}

static void child(void) {
    torch_lib_after_fork();
    cuda_after_fork();
    torch_threads_after_fork();
    step_reset(1);
    t.ask = ASK_NOTHING;
}

const struct agent_part torch_part = {
    .open = begin,
    .round = round_of,
    .wait = wish,
    .quit = quit,
    .child = child,
};
