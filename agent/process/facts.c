/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/process.h"

#include <ctype.h>
#include <dirent.h>
#include <gnu/libc-version.h>
#include <locale.h>
#include <regex.h>
#include <stdio.h>
#include <sys/utsname.h>

#include "agent/base/known.h"
#include "agent/core/config.h"
#include "agent/core/settings.h"
#include "traces/map.h"

#define AGAIN_NS 10000000000u /* interval of reads: programs set variables, then import torch */
#define SAID_MAX 512

static struct {
    struct map said;  /* last written facts: hash of kind and key -> hash of the value */
    uint32_t segment; /* number of the trace's segment, + 1 */
    uint64_t next_environment;
} f;

/* Returns whether the value is new or has changed since it was last written; remembers it. */
static int is_news(const char *kind, const char *key, const char *value) {
    uint64_t k = known_text(known_mix(known_text(0, kind), 1), key);
    uint32_t v = (uint32_t)known_text(0, value) | 1, was = map_find(&f.said, k);
    return was != v && (was || f.said.n < SAID_MAX) && !map_put(&f.said, k, v);
}

static void say(struct writer *w, const char *kind, const char *key, const char *value) {
    if (!value[0] || !is_news(kind, key, value))
        return;
    WRITER_EMIT(w, fact, .ts = sys_now(), .kind = value_text(kind), .key = value_text(key),
                .value = value_text(value));
}

/* Returns the rest of the line after `name` and one or more characters of `between`; "" when the text has no such line. */
static char *value_of(char *text, const char *name, const char *between) {
    char *p = proc_value(text, name, between);
    if (!p)
        return text + strlen(text);
    p[strcspn(p, "\n")] = 0;
    return p;
}

/* ---- the environment ---- */

/* Returns whether the list contains the name. A name in the list may end in `*`, which matches any characters. */
static int is_listed(const char *list, const char *name, size_t n) {
    for (const char *p = list; *(p += strspn(p, ", ")); p += strcspn(p, ", ")) {
        size_t len = strcspn(p, ", ");
        if (p[len - 1] == '*' ? n >= len - 1 && !strncmp(p, name, len - 1)
                              : n == len && !strncmp(p, name, len))
            return 1;
    }
    return 0;
}

/* What a secret looks like in `NAME=VALUE`: by the name, or one within the value; a URL with a user; known forms of keys and tokens. */
static const char secret[] =
    "(TOKEN|SECRET|PASSW|PASSP|PWD|KEY|CREDENTIAL|AUTH|JWT|COOKIE|PRIVATE|SIGNATURE)[^=:,;/]*[=:]"
    "|(^|[^a-z])(PASS|CREDS?|SAS|DSN|SIG)[=:]|_PAT=|://[^/ @]*@|://[^ @]*:[^ @]*@|-----BEGIN "
    "|[^a-z0-9]((AKIA|ASIA)[A-Z0-9]{16}|(gh[oprsu]|github_pat|hf)_[a-z0-9]{20}|(sk|glpat|xox[a-z])-"
    "[a-z0-9_-]{16}|eyJ[a-z0-9_-]{10,}\\.|BEARER )";

struct taking {
    struct writer *w;
    regex_t secret;
    char list[SETTING_TEXT_MAX];
};

static void take_variable(char *entry, void *arg) {
    struct taking *t = arg;
    size_t n = strcspn(entry, "=");
    if (!entry[n] || !is_listed(t->list, entry, n) || !regexec(&t->secret, entry, 0, NULL, 0))
        return;
    entry[n] = 0;
    say(t->w, "env", entry, entry + n + 1);
}

/* ---- the machine ---- */

static void take_system(struct writer *w) {
    char text[8192];
    struct utsname u;
    cpu_set_t cpus;
    if (uname(&u) == 0) {
        snprintf(text, sizeof text, "%s %s", u.release, u.version);
        say(w, "system", "kernel", text);
        say(w, "system", "architecture", u.machine);
    }
    say(w, "system", "glibc", gnu_get_libc_version());
    if (proc_read_file("/proc/cpuinfo", text, sizeof text))
        say(w, "system", "cpu_model", value_of(text, "model name", ":\t "));
    snprintf(text, sizeof text, "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    say(w, "system", "cpus", text);
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) {
        snprintf(text, sizeof text, "%d", CPU_COUNT(&cpus));
        say(w, "system", "cpus_allowed", text);
    }
    if (proc_read_file("/proc/meminfo", text, sizeof text))
        say(w, "system", "memory", value_of(text, "MemTotal", ": "));
    if (proc_read_file("/proc/driver/nvidia/version", text, sizeof text))
        say(w, "system", "nvidia_driver", value_of(text, "NVRM version", ": "));
}

/* Records the limit in a file of the cgroup; where the group has no limit, that of the nearest enclosing group. */
static void take_limit(struct writer *w, const char *root, const char *dir, const char *file) {
    char path[4200], text[512];
    size_t n = strlen(dir);
    for (;; n -= n > 0) {
        snprintf(path, sizeof path, "%s%.*s/%s", root, (int)n, dir, file);
        if (proc_read_file(path, text, sizeof text)) {
            text[strcspn(text, "\n")] = 0;
            if (strncmp(text, "max", 3) && strcmp(text, "-1") &&
                strtoull(text, NULL, 10) < 1ull << 60)
                break;
        }
        while (n && dir[n - 1] != '/')
            n--;
        if (!n)
            return;
    }
    say(w, "limit", file, text);
}

/* Records the limits of one cgroup hierarchy, "controllers:path". In a container, the path may be one outside: then the own group is the mount's root. */
static void take_cgroup(struct writer *w, char *line) {
    static const char *const files[] = {"memory.max",
                                        "memory.high",
                                        "memory.swap.max",
                                        "cpu.max",
                                        "cpuset.cpus.effective",
                                        "pids.max",
                                        "memory.limit_in_bytes",
                                        "cpu.cfs_quota_us",
                                        "cpu.cfs_period_us"};
    char *dir = strchr(line, ':'), root[64], path[4200], text[4096];
    if (!dir)
        return;
    *dir++ = 0;
    for (size_t r = 0; r < 2; r++) {
        const char *in = dir, *more = r ? "/unified" : line[0] ? "/" : "";
        snprintf(root, sizeof root, "/sys/fs/cgroup%s%.30s", more, line);
        snprintf(path, sizeof path, "%s%s", root, dir);
        if (access(path, F_OK))
            in = "";
        if (access(root, F_OK) || (r && line[0]))
            continue;
        for (size_t i = 0; i < sizeof files / sizeof *files; i++)
            take_limit(w, root, in, files[i]);
        /* The number of OOM kills in the group: if the process is killed, whoever finishes the trace compares it with the later number. */
        snprintf(path, sizeof path, "%s%s/%s", root, in,
                 line[0] ? "memory.oom_control" : "memory.events");
        if (!proc_read_file(path, text, sizeof text))
            continue;
        say(w, "limit", "oom_file", path);
        say(w, "limit", "oom_kills", value_of(text, "oom_kill", " "));
    }
}

static void take_cgroups(struct writer *w) {
    char text[8192], *save = NULL;
    if (!proc_read_file("/proc/thread-self/cgroup", text, sizeof text))
        return;
    for (char *p = strtok_r(text, "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(p, ':');
        if (controllers &&
            (!strncmp(controllers, "::", 2) || !strncmp(controllers, ":memory:", 8) ||
             !strncmp(controllers, ":cpu", 4) || !strncmp(controllers, ":pids:", 6)))
            take_cgroup(w, controllers + 1);
    }
}

/* ---- versions ---- */

/* Records a package's version, from SITE/NAME[_MORE]-VERSION[-...].dist-info or .egg-info; `-`, `_` and `.` are equivalent, case is ignored. */
static void take_package(struct writer *w, const char *site, const char *name, const char *key) {
    DIR *d = opendir(site);
    struct dirent *e;
    while (d && (e = readdir(d))) {
        char *p = e->d_name, *version = strchr(p, '-'), *end = version ? strrchr(p, '.') : NULL;
        size_t n = 0;
        if (!end || end < version || (strcmp(end, ".dist-info") && strcmp(end, ".egg-info")))
            continue;
        while (name[n] &&
               (tolower(p[n]) == tolower(name[n]) || (strchr("_.", p[n]) && name[n] == '_')))
            n++;
        if (name[n] || (p + n != version && strncmp(p + n, "_cu", 3)))
            continue;
        *end = 0;
        version[1 + strcspn(version + 1, "-")] = 0;
        say(w, "version", key, version + 1);
        break;
    }
    if (d)
        closedir(d);
}

/* Records what torch was built with, from lines such as cuda = '12.4', or cuda: Optional[str] = None */
static void take_torch(struct writer *w, const char *site) {
    static const char *const names[] = {"cuda", "hip", "git_version"};
    char path[4200], text[4096], key[32];
    snprintf(path, sizeof path, "%s/torch/version.py", site);
    for (size_t i = 0; i < sizeof names / sizeof *names && proc_read_file(path, text, sizeof text);
         i++) {
        char *value = strpbrk(value_of(text, names[i], ":= "), "'\"");
        if (!value)
            continue;
        value[1 + strcspn(value + 1, "'\"")] = 0;
        snprintf(key, sizeof key, "torch.%s", names[i]);
        say(w, "version", key, value + 1);
    }
}

/* Records the version of a library that has it in its file name. */
static void take_library(struct writer *w, const char *path) {
    static const char *const libraries[][2] = {{"libcuda.so.", "cuda_driver"},
                                               {"libcudart.so.", "cuda_runtime"},
                                               {"libnccl.so.", "nccl"},
                                               {"libcudnn.so.", "cudnn"}};
    const char *base = strrchr(path, '/');
    for (size_t i = 0; base && i < sizeof libraries / sizeof *libraries; i++) {
        size_t n = strlen(libraries[i][0]);
        if (!strncmp(base + 1, libraries[i][0], n) && strchr(base + 1 + n, '.'))
            say(w, "version", libraries[i][1], base + 1 + n);
    }
}

/* Records the version of the package that a mapped file belongs to: .../site-packages/NAME/..., .../site-packages/nvidia/NAME/... */
static void take_version(struct writer *w, const char *path) {
    const char *at = strstr(path, "-packages/"), *key;
    char site[4096], name[160];
    take_library(w, path);
    if (!at || (size_t)(at - path) + 10 >= sizeof site)
        return;
    at += 10;
    size_t n = strcspn(at, "/"), m;
    if (!at[n] || n > 64)
        return;
    snprintf(site, sizeof site, "%.*s", (int)(at - path - 1), path);
    m = strcspn(at + n + 1, "/");
    if (!strncmp(at, "nvidia/", 7) && m < 64)
        snprintf(name, sizeof name, "nvidia_%.*s", (int)m, at + n + 1);
    else
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "./"), at);
    key = strncmp(name, "nvidia_", 7) ? name : name + 7;
    if (!is_news("looked up", name, site))
        return;
    take_package(w, site, name, key);
    if (!strcmp(name, "torch"))
        take_torch(w, site);
}

/* ---- all facts ---- */

void facts_take(struct writer *w, uint64_t now) {
    uint32_t at = __atomic_load_n(&writer_live(w)->segment, __ATOMIC_RELAXED) + 1;
    const char *path;
    if (at != f.segment) { /* each segment must be readable alone */
        facts_reset();
        f.segment = at;
        take_system(w);
        take_cgroups(w);
    }
    for (size_t i = 0; (path = modules_path(i)); i++)
        take_version(w, path);
    if (now >= f.next_environment) {
        struct taking t = {.w = w};
        f.next_environment = now + AGAIN_NS;
        settings_text(SETTING_environment, t.list, sizeof t.list);
        uselocale(newlocale(LC_ALL_MASK, "C", NULL)); /* of this thread alone: i is I */
        if (regcomp(&t.secret, secret, REG_EXTENDED | REG_ICASE | REG_NOSUB) == 0) {
            config_env_each(take_variable, &t);
            regfree(&t.secret);
        }
    }
}

void facts_reset(void) {
    map_free(&f.said);
    f.next_environment = f.segment = 0;
}
