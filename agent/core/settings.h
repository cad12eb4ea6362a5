/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.h - the values that the settings of traces/settings.def have in this process, and their change while it
 * runs. The table says how to add a setting.
 *
 *     uint64_t ns = settings_number(SETTING_metrics);                       read it where it is needed: never stale
 *     settings_watch(SETTING_torch_profiling, changed);                     or be called: static void changed(void)
 *     if (settings_set("torch.profiling", "off", why, sizeof why)) ... why  change it, from any thread
 *
 * At the start the values come from the injection's lines, else the environment, else the table (config.h). A change
 * comes through the mailbox (`probing config`) or settings_set(); the service thread then calls who watches and writes
 * a config record. A forked child goes on with its parent's values.
 */
#ifndef PROBING_AGENT_SETTINGS_H
#define PROBING_AGENT_SETTINGS_H

#include "traces/settings.h"
#include "writer/writer.h"

/* The value as struct setting_value keeps it: ns, bytes, 0 or 1, ... Any thread, any signal context. */
uint64_t settings_number(enum setting_id id);
/* Copies the text form; n should be SETTING_TEXT_MAX. Returns its length. Any thread; not for signal handlers. */
size_t settings_text(enum setting_id id, char *buf, size_t n);
/* A number that changes with each change of the value. Any thread, any signal context. */
uint32_t settings_version(enum setting_id id);
/*
 * Checks and stores a value; what follows from it happens on the service thread (settings_apply), at its next round or
 * when it is woken.
 * 0; -ENOENT: no such key; -EINVAL; then `why` (of SETTING_WHY bytes) is one line for people. Any thread.
 */
int settings_set(const char *key, const char *text, char *why, size_t n);
/*
 * From now on `changed` is called on the service thread after each change of the value, before the change is recorded; not
 * for the value that holds now. One watcher for each setting: the last one. NULL: nobody.
 */
void settings_watch(enum setting_id id, void (*changed)(void));

/* ---- for the agent's own life ---- */

/* Sets the value that holds when a recording starts: no change, nobody is called. */
void settings_init(enum setting_id id, const struct setting_value *v);
/* Service thread: calls who watches what has changed and writes config records; with `all` a record of every setting, at the start of a trace. */
void settings_apply(struct writer *w, int all);
/* In a forked child: whoever was changing something does not exist here. Async-signal-safe. */
void settings_after_fork(void);
/* All settings as JSON: {"probing.sample_rate":{"value":"0.1","range":"...","doc":"..."},...}, cut where it is longer than n; the length. */
size_t settings_json(char *buf, size_t n);

#endif
