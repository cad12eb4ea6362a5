/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.h - the values of the settings of traces/settings.def in this process, and how they change while it runs. settings.def says how to add a setting.
 *
 *     uint64_t ns = settings_number(SETTING_metrics);                       read it at each use: never stale
 *     settings_watch(SETTING_torch_profiling, changed);                     or be called: static void changed(void)
 *     if (settings_set("torch.profiling", "off", why, sizeof why)) ... why  change it, from any thread
 *
 * At the start the values come from the injection's KEY=VALUE lines, else the environment, else the table (config.h). A change comes through the mailbox
 * (`probing config`) or settings_set(); the service thread then calls the watcher and writes a config record. A forked child keeps its parent's values.
 */
#ifndef PROBING_AGENT_SETTINGS_H
#define PROBING_AGENT_SETTINGS_H

#include "traces/settings.h"
#include "writer/writer.h"

/* Returns the value as struct setting_value keeps it: ns, bytes, 0 or 1, ... Callable from any thread and any signal handler. */
uint64_t settings_number(enum setting_id id);
/* Copies the value's text; n should be SETTING_TEXT_MAX. Returns its length. Callable from any thread; not from signal handlers. */
size_t settings_text(enum setting_id id, char *buf, size_t n);
/* Returns a number that changes with each change of the value. Callable from any thread and any signal handler. */
uint32_t settings_version(enum setting_id id);
/*
 * Checks and stores a value. The service thread makes it take effect (settings_apply), at its next round or when it is woken. Returns 0; -ENOENT when there is
 * no such key; -EINVAL when the value is invalid. On error, `why` (of SETTING_WHY bytes) is one line that tells the user why. Callable from any thread.
 */
int settings_set(const char *key, const char *text, char *why, size_t n);
/*
 * Sets the watcher of a setting: `changed` is called on the service thread after each later change of the value, before the
 * change is recorded. Each setting has one watcher, the last one set; NULL removes it.
 */
void settings_watch(enum setting_id id, void (*changed)(void));

/* ---- for the core only ---- */

/* Sets the value with which a recording starts. This is not a change: the watcher is not called. */
void settings_init(enum setting_id id, const struct setting_value *v);
/* Calls the watchers of changed settings and writes config records; with `all`, a record of every setting (at the start of a segment). Service thread only. */
void settings_apply(struct writer *w, int all);
/* To be called in a forked child: releases the lock, whose holder may not exist here. Async-signal-safe. */
void settings_after_fork(void);
/* Writes all settings as JSON: {"probing.sample_rate":{"value":"0.1","range":"...","doc":"..."},...}, cut to n bytes. Returns the length. */
size_t settings_json(char *buf, size_t n);

#endif
