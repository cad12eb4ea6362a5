/* SPDX-License-Identifier: Apache-2.0 */
/* sampler_part.c - the sampler of the recording in progress, and the settings that it reads from the live file at each tick. */
#include <errno.h>
#include <string.h>

#include "agent/core/meta.h"
#include "agent/core/settings.h"
#include "agent/sampler/sampler.h"

static struct sampler *current; /* (a) */
static struct live *live;
static uint64_t cpu; /* of the last one: its thread's CPU time is asked for after its end, too */

static void settings_changed(void) {
    __atomic_store_n(&live->period_ns, settings_number(SETTING_sample_rate), __ATOMIC_RELEASE);
    __atomic_store_n(&live->native, (uint32_t)settings_number(SETTING_native), __ATOMIC_RELEASE);
}

static void begin(struct writer *w) {
    struct sampler *s;
    int err;
    live = writer_live(w);
    cpu = 0;
    settings_changed();
    settings_watch(SETTING_sample_rate, settings_changed);
    settings_watch(SETTING_native, settings_changed);
    err = sampler_start(&s, live);
    if (err)
        meta_note(w, 2, "sampler", "not started: %s", strerrordesc_np(-err));
    __atomic_store_n(&current, s, __ATOMIC_RELEASE);
}

static uint64_t cpu_ns(void) {
    if (current)
        cpu = sampler_cpu_ns(current);
    return cpu;
}

static int halt(void) {
    struct sampler *s = current;
    cpu_ns();
    __atomic_store_n(&current, NULL, __ATOMIC_RELEASE);
    return sampler_stop(s);
}

static void child(int whole) {
    (void)whole;
    sampler_abandon(current);
    current = NULL;
}

int sampler_part_burst(uint64_t tick, uint32_t except, int timeout_ms) {
    return current ? sampler_burst(current, tick, except, timeout_ms) : -ESRCH;
}

const struct agent_part sampler_part = {
    .name = "sampler",
    .open = begin,
    .halt = halt,
    .child = child,
    .cpu_ns = cpu_ns,
};
