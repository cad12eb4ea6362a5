/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include "agent/base/memory.h"
#include "agent/core/settings.h"
#include "agent/pywalk/mem.h"

extern char **environ;

/* A copy of one page of our own memory, read without a fault even if it is freed meanwhile. The environment lies in
 * few pages, so reading all of it takes few system calls. */
struct peek {
    struct pywalk_page page;
    struct pywalk_pages pages;
};

static int peek(struct peek *p, const void *addr, void *buf, size_t n) {
    p->pages = (struct pywalk_pages){{memory_read, NULL}, 1, &p->page};
    return pywalk_pages_read(&p->pages, (uint64_t)(uintptr_t)addr, buf, n);
}

/* Copies a string, NUL included. Returns 1; 0 when it cannot be read; -E2BIG when it is too long. */
static int peek_string(struct peek *p, const char *addr, char *buf, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (peek(p, addr + i, buf + i, 1))
            return 0;
        if (!buf[i])
            return 1;
    }
    return -E2BIG;
}

/* Returns the address of environment entry *i and increments *i; NULL when there are no more, or they cannot be read. */
static char *next_entry(struct peek *list, unsigned *i) {
    char **env = __atomic_load_n(&environ, __ATOMIC_ACQUIRE), *entry;
    return env && *i < 65536 && !peek(list, env + (*i)++, &entry, sizeof entry) ? entry : NULL;
}

int config_env(const char *name, char *buf, size_t n) {
    struct peek list = {.page = {0}}, text = {.page = {0}};
    char *entry, head[64];
    size_t len = strlen(name);
    if (!n || len + 1 >= sizeof head)
        return 0;
    for (unsigned i = 0; (entry = next_entry(&list, &i));) {
        /* An entry shorter than NAME= cannot match: so a read that fails at the end of the mapped memory misses nothing. */
        if (!peek(&text, entry, head, len + 1) && !memcmp(head, name, len) && head[len] == '=')
            return peek_string(&text, entry + len + 1, buf, n);
    }
    const char *v = peek(&text, name, head, 1) ? getenv(name) : NULL; /* nothing can be read */
    return !v ? 0 : snprintf(buf, n, "%s", v) < (int)n ? 1 : -E2BIG;
}

void config_env_each(void (*fn)(char *entry, void *arg), void *arg) {
    struct peek list = {.page = {0}}, text = {.page = {0}};
    char *entry, copy[4096];
    for (unsigned i = 0; (entry = next_entry(&list, &i));)
        if (peek_string(&text, entry, copy, sizeof copy) == 1)
            fn(copy, arg);
}

__attribute__((format(printf, 2, 3))) static void complain(struct agent_config *c, const char *fmt,
                                                           ...) {
    if (c->ncomplaints == CONFIG_COMPLAINTS)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->complaints[c->ncomplaints++], sizeof c->complaints[0], fmt, ap);
    va_end(ap);
}

/* Looks up `name` in the KEY=VALUE lines of `conf`, else in the environment. Returns 1 when it is set and fits; else buf is "". */
static int lookup(struct agent_config *c, const char *conf, const char *name, char *buf, size_t n) {
    const char *v = conf ? proc_value(conf, name, "=") : NULL;
    int len = v ? (int)strcspn(v, "\n") : 0, found;
    found = !v ? config_env(name, buf, n) : snprintf(buf, n, "%.*s", len, v) < (int)n ? 1 : -E2BIG;
    if (found < 0)
        complain(c, "%s is too long: it is left out of account", name);
    if (found <= 0)
        buf[0] = 0;
    return found > 0;
}

static char run[RUN_ID];

const char *config_run(void) {
    return run;
}

static void load_trace(struct agent_config *c, const char *conf) {
    char raw[CONFIG_PATH], cwd[CONFIG_PATH];
    struct stat st;
    if (!lookup(c, conf, "PROBING_TRACE", raw, sizeof raw) || !raw[0])
        strcpy(raw, "trace.zst");
    if (raw[0] == '/') {
        strcpy(c->trace, raw);
    } else {
        if (!getcwd(cwd, sizeof cwd) || cwd[0] != '/' || !cwd[1])
            cwd[0] = 0; /* the root, also where the directory is gone */
        if (snprintf(c->trace, sizeof c->trace, "%s/%s", cwd, raw) >= (int)sizeof c->trace) {
            strcpy(c->trace, "/trace.zst");
            complain(c, "PROBING_TRACE is too long");
        }
    }
    size_t len = strlen(c->trace);
    c->trace_is_dir = c->trace[len - 1] == '/' || (!stat(c->trace, &st) && S_ISDIR(st.st_mode));
    while (len > 1 && c->trace[len - 1] == '/')
        c->trace[--len] = 0;
}

/* Loads one setting. An invalid value is reported, and the default is used. */
static void load_setting(struct agent_config *c, const char *conf, enum setting_id id) {
    char name[SETTING_ENV], text[SETTING_TEXT_MAX], why[SETTING_WHY];
    struct setting_value v;
    setting_env(id, name);
    int said = lookup(c, conf, name, text, sizeof text);
    if (!said && id == SETTING_torch_exprs) /* this setting has a second name */
        said = lookup(c, conf, strcpy(name, "PROBE_TORCH_EXPRS"), text, sizeof text);
    if (said) {
        if (!setting_parse(id, text, &v, why, sizeof why)) {
            if (setting_advice(id, text, why, sizeof why))
                complain(c, "%s", why);
            settings_init(id, &v);
            return;
        }
        /* `why` begins with the setting's key; it is replaced by the variable's name, which the user knows. */
        complain(c, "%s%s; '%s' is used", name, why + strcspn(why, "="), setting_at(id)->initial);
    }
    if (!setting_parse(id, setting_at(id)->initial, &v, why, sizeof why))
        settings_init(id, &v);
}

static void load_misspelt(char *entry, void *arg) {
    char why[SETTING_WHY];
    if (setting_misspelt(entry, why, sizeof why))
        complain(arg, "%s", why);
}

void config_load(struct agent_config *c, const char *conf) {
    char v[256];
    memset(c, 0, sizeof *c);
    load_trace(c, conf);
    c->first = !lookup(c, NULL, "PROBING_RUN", v, sizeof v) ||
               (conf && strstr(conf, "PROBING_TRACE=") != NULL);
    if (!run[0] && !lookup(c, NULL, "PROBING_RUN", run, sizeof run))
        run_self(run, sizeof run);
    if (lookup(c, conf, "PROBING_MAIN_PID", v, sizeof v))
        c->main_pid = (uint32_t)strtoul(v, NULL, 10);
    lookup(c, conf, "PROBING_SESSION", c->session, sizeof c->session);
    lookup(c, conf, "PROBING_RUN_DIR", c->run_dir, sizeof c->run_dir);
    lookup(c, NULL, "XDG_RUNTIME_DIR", c->xdg, sizeof c->xdg);
    c->passive = lookup(c, conf, "PROBING_PASSIVE", v, sizeof v) && !strcmp(v, "1");
    for (unsigned i = 0; i < SETTING_N; i++)
        load_setting(c, conf, (enum setting_id)i);
    config_env_each(load_misspelt, c);
}

static int32_t first_number(const char *const *names) {
    char v[32], *end;
    for (; *names; names++) {
        if (config_env(*names, v, sizeof v) <= 0)
            continue;
        long n = strtol(v, &end, 10);
        if (end != v && !*end && n >= 0 && n <= INT32_MAX)
            return (int32_t)n;
    }
    return -1;
}

#define FIRST_NUMBER(...) first_number((const char *const[]){__VA_ARGS__, NULL})
void config_ranks(struct agent_ranks *r) {
    snprintf(r->id.run, sizeof r->id.run, "%s", run);
    run_job(r->id.job, config_env);
    r->rank = FIRST_NUMBER("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID");
    r->local_rank = FIRST_NUMBER("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID");
    r->world_size = FIRST_NUMBER("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS");
}
