/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_config.c - `probing -t PID config`: shows and changes the settings of a running recording. The agent checks each
 * change; this command refuses wrong ones before it sends them, by the same table (traces/settings.h).
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "../traces/settings.h"
#include "options.h"
#include "rows.h"
#include "target.h"

#define TIMEOUT_S 10

static const char help[] =
    "usage: probing -t PID config [--json]\n"
    "       probing -t PID config KEY\n"
    "       probing -t PID config KEY=VALUE...\n"
    "\n"
    "Shows the settings of a running recording, one of them, or changes some. A change holds from\n"
    "now on and is written in the trace. Recorded processes that this one forks later take over\n"
    "its settings.\n"
    "\n"
    "  -t, --target PID   the process\n"
    "      --json         all settings as one JSON object\n"
    "  -h, --help         this text\n"
    "\n"
    "Settings, each with \"probing.\" before it or not:\n";

static void help_on_settings(void) {
    char env[SETTING_ENV];

    for (int i = 0; i < SETTING_N; i++) {
        const struct setting *s = setting_at((enum setting_id)i);
        printf("  %-18s %s: %s (%s)\n", s->key, s->doc, s->range,
               *s->initial ? s->initial : "empty");
    }
    printf(
        "\nAt the start they come from the environment: %s, %s ...\n\n"
        "Exit: 0 done; 2 usage, an unknown key or a value that is not allowed; 3 nothing could be done.\n",
        setting_env((enum setting_id)0, env), "PROBING_NATIVE");
}

static int show_table(const cJSON *all, const char *only) {
    static const char *const names[] = {"key", "value", "allowed", "what it is"};
    const cJSON *s;
    struct rows *r;

    if (rows_open(&r, "table", stdout) < 0)
        return tool_fail("cannot show the settings: no memory");
    if (!only)
        rows_begin(r, 4, names);
    cJSON_ArrayForEach(s, all) {
        const char *value = cJSON_GetStringValue(cJSON_GetObjectItem(s, "value"));
        const char *range = cJSON_GetStringValue(cJSON_GetObjectItem(s, "range"));
        const char *doc = cJSON_GetStringValue(cJSON_GetObjectItem(s, "doc"));
        if (only && !strcmp(s->string, only))
            printf("%s\n", value ? value : "");
        struct rows_value v[4] = {rows_text(s->string), rows_text(value ? value : ""),
                                  rows_text(range ? range : ""), rows_text(doc ? doc : "")};
        if (!only)
            rows_row(r, v);
    }
    if (!only)
        rows_end(r);
    rows_close(r);
    return TOOL_OK;
}

static int show(int pid, const char *key, int json) {
    char *out = NULL, full[SETTING_ENV] = "", why[SETTING_WHY];
    int rc;

    if (key) {
        rc = setting_find(key);
        if (rc < 0) {
            setting_unknown(key, why, sizeof why);
            return tool_usage("%s", why);
        }
        snprintf(full, sizeof full, "probing.%s", setting_at((enum setting_id)rc)->key);
    }
    rc = target_ask(pid, MAIL_CONFIG, "", TIMEOUT_S, 0, &out);
    if (rc < 0) {
        rc = tool_fail("%s", out ? out : strerror(-rc));
    } else if (json) {
        printf("%s\n", out);
    } else {
        cJSON *all = cJSON_Parse(out);
        rc = all ? show_table(all, key ? full : NULL)
                 : tool_fail("the agent's answer cannot be read: %.200s", out);
        cJSON_Delete(all);
    }
    inspect_free(out);
    return rc;
}

/* Refuses what the agent would refuse. All changes are checked before the first is sent, so that a wrong one leaves all settings as they are. */
static int check(const char *text) {
    char key[SETTING_ENV], why[SETTING_WHY];
    struct setting_value v;
    const char *eq = strchr(text, '=');
    int id;

    snprintf(key, sizeof key, "%.*s", (int)(eq - text), text);
    id = setting_find(key);
    if (id < 0)
        setting_unknown(key, why, sizeof why);
    else if (!setting_parse((enum setting_id)id, eq + 1, &v, why, sizeof why)) {
        if (setting_advice((enum setting_id)id, eq + 1, why, sizeof why))
            tool_say("%s", why);
        return TOOL_OK;
    }
    return tool_usage("%s", why);
}

static int change(int pid, const char *text) {
    char *out = NULL;
    int rc = target_ask(pid, MAIL_CONFIG, text, TIMEOUT_S, 0, &out);

    if (rc == -EINVAL)
        rc = tool_usage("%s", out ? out : text);
    else if (rc < 0)
        rc = tool_fail("%s", out ? out : strerror(-rc));
    inspect_free(out);
    return rc;
}

int cmd_config(int argc, char **argv) {
    int pid = 0, json = 0, changes = 0, rc;
    const struct tool_option options[] = {
        OPTION_CALL("target", 't', option_pid, &pid), OPTION_FLAG("json", 0, &json), {0}};

    rc = tool_options(argc, argv, help, options);
    if (rc == TOOL_HELPED)
        help_on_settings();
    if (rc != TOOL_OK)
        return rc;
    argc -= optind + 1; /* skip the word config */
    argv += optind + 1;
    if (!pid)
        return tool_usage("which process? -t PID");
    for (int i = 0; i < argc; i++)
        changes += strchr(argv[i], '=') != NULL;
    if (!changes && argc < 2)
        return show(pid, argc ? argv[0] : NULL, json);
    if (changes != argc)
        return tool_usage("either KEY=VALUE... to change, or one KEY to show");
    for (int i = 0; i < argc && rc == TOOL_OK; i++)
        rc = check(argv[i]);
    for (int i = 0; i < argc && rc == TOOL_OK; i++)
        rc = change(pid, argv[i]);
    return rc;
}
