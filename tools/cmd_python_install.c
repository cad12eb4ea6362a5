/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_python_install.c - probing python-install: puts the Python package `probing` and its .pth file into an interpreter's
 * site-packages, so that `import probing` and PROBING=1 work there. --uninstall removes what this command installed, nothing else.
 *
 * The interpreter is asked where its packages lie (in a venv, the system's folder or the user's). The package is copied there; the
 * agent stays where it is, and the copy holds its path. Another package of the same name is left alone.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "options.h"
#include "record_run.h"

#define PATH_FILE                                                                                  \
    "agent.path" /* file in the package that holds the agent's path; it also shows that python-install made the package */
#define PTH "probing.pth"

static const char help[] =
    "usage: probing python-install [--python EXE] [--uninstall] [--dry-run]\n"
    "\n"
    "Makes `import probing` and `PROBING=1 python train.py` work with a Python interpreter: copies the\n"
    "package probing and a file probing.pth into its site-packages (a virtual environment's own, if EXE\n"
    "belongs to one; the user's, if the other cannot be written). The .pth file does nothing unless\n"
    "PROBING, PROBE or PROBING_TORCH_PROFILING is set.\n"
    "\n"
    "  -p, --python EXE  the interpreter (default python3 in the PATH)\n"
    "      --uninstall   remove what this command installed\n"
    "  -n, --dry-run     only say what would be done\n"
    "  -h, --help        this text\n"
    "      --version     print the version\n"
    "\n"
    "Exit code: 0 done; 1 nothing to uninstall; 2 usage; 3 when it cannot be done.\n";

struct place {
    char exe[PATH_MAX];
    unsigned long version;
    char site[PATH_MAX], user[PATH_MAX], prefix[PATH_MAX]; /* user: "" if there is none */
    char dir[PATH_MAX]; /* folder to install into: site or user */
};

struct options {
    const char *python;
    int uninstall, dry_run;
};

/* ---- the interpreter ---- */

static int join(char *buf, const char *dir, const char *name) {
    return snprintf(buf, PATH_MAX, "%s/%s", dir, name) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* Runs the interpreter with -c `code` and puts its stdout, cut to n - 1 bytes, into out. Returns its exit code, or -errno. */
static int ask_python(const char *exe, const char *code, char *out, size_t n) {
    int fd[2], status = 0;
    size_t have = 0;
    if (pipe2(fd, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd[1], 1);
        setenv("PROBING", "0", 1);
        setenv("PROBE", "0", 1);
        unsetenv("LD_PRELOAD");
        if (chdir("/") == 0)
            execl(exe, exe, "-c", code, (char *)NULL);
        _exit(127);
    }
    close(fd[1]);
    for (ssize_t r; pid > 0 && have + 1 < n && (r = read(fd[0], out + have, n - 1 - have)) > 0;)
        have += (size_t)r;
    close(fd[0]);
    out[have] = 0;
    if (pid < 0)
        return -EAGAIN;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -ECHILD;
}

static char *next_line(char **rest) {
    char *line = *rest, *nl = line ? strchr(line, '\n') : NULL;
    if (nl)
        *nl = 0;
    *rest = nl ? nl + 1 : NULL;
    return line ? line : (char *)"";
}

static int find_place(const char *python, struct place *p) {
    static const char code[] =
        "import sys, site, sysconfig, platform\n"
        "print(platform.python_implementation()); print('%x' % sys.hexversion)\n"
        "print(sysconfig.get_paths()['purelib']); print(sys.prefix)\n"
        "print(site.getusersitepackages() if site.ENABLE_USER_SITE else '')\n";
    char out[4 * PATH_MAX], *rest = out;
    int rc = run_find(python, p->exe, sizeof p->exe);
    if (rc < 0)
        return tool_fail("cannot run %s: %s (name the interpreter: --python EXE)", python,
                         rc == -ENOENT ? "no such command" : strerror(-rc));
    /* Symbolic links are not resolved: a virtual environment's interpreter is one, and its target would be another interpreter. */
    if (*p->exe != '/') {
        char cwd[PATH_MAX], exe[PATH_MAX];
        snprintf(exe, sizeof exe, "%s", p->exe);
        if (!getcwd(cwd, sizeof cwd) || join(p->exe, cwd, exe) < 0)
            return tool_fail("cannot use %s: its path is too long", python);
    }
    if (ask_python(p->exe, code, out, sizeof out) != 0)
        return tool_fail(
            "cannot ask %s where its packages lie: it is no working Python interpreter", p->exe);
    const char *kind = next_line(&rest);
    if (!*kind)
        return tool_fail(
            "cannot ask %s where its packages lie: it is no working Python interpreter", p->exe);
    p->version = strtoul(next_line(&rest), NULL, 16);
    if (strcmp(kind, "CPython") || p->version < 0x03060000)
        return tool_fail("cannot record %s: it is %s %lu.%lu (CPython 3.6 or later is needed)",
                         p->exe, kind, p->version >> 24, p->version >> 16 & 0xff);
    snprintf(p->site, sizeof p->site, "%s", next_line(&rest));
    snprintf(p->prefix, sizeof p->prefix, "%s", next_line(&rest));
    snprintf(p->user, sizeof p->user, "%s", next_line(&rest));
    return 0;
}

/* ---- files ---- */

/* Creates a directory and those above it. */
static int make_dirs(const char *path) {
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *p = part + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        if (mkdir(part, 0777) < 0 && errno != EEXIST)
            return -errno;
        *p = '/';
    }
    return mkdir(part, 0777) < 0 && errno != EEXIST ? -errno : 0;
}

/* Replaces a file in one step, so that a Python that starts meanwhile reads either the old file or the new one. */
static int write_file(const char *path, const char *bytes, size_t n) {
    char temporary[PATH_MAX];
    int rc = 0, fd;
    if (snprintf(temporary, sizeof temporary, "%s.tmp%d", path, (int)getpid()) >= PATH_MAX)
        return -ENAMETOOLONG;
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    while (n && rc == 0) {
        ssize_t w = write(fd, bytes, n);
        if (w < 0)
            rc = -errno;
        else
            bytes += w, n -= (size_t)w;
    }
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && rename(temporary, path) < 0)
        rc = -errno;
    if (rc < 0)
        unlink(temporary);
    return rc;
}

static int copy_file(const char *from, const char *to) {
    char bytes[65536];
    size_t have = 0;
    int fd = open(from, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    for (ssize_t r; have < sizeof bytes && (r = read(fd, bytes + have, sizeof bytes - have)) > 0;)
        have += (size_t)r;
    close(fd);
    return have < sizeof bytes ? write_file(to, bytes, have) : -EFBIG;
}

/* Removes a directory and the files in it, but no subdirectory: the only one in our package is __pycache__, which the caller removes first. */
static void remove_dir(const char *path) {
    char name[PATH_MAX];
    struct dirent *e;
    DIR *d = opendir(path);
    while (d && (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && !join(name, path, e->d_name))
            unlink(name);
    if (d)
        closedir(d);
    rmdir(path);
}

/* ---- what is there already ---- */

enum { NOTHING, OURS, PIPS, FOREIGN };

static int what_is_in(const char *dir) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.3900s/probing/" PATH_FILE, dir);
    if (access(path, F_OK) == 0)
        return OURS;
    snprintf(path, sizeof path, "%.3900s/probing/lib/libprobing-agent.so", dir);
    if (access(path, F_OK) == 0)
        return PIPS;
    snprintf(path, sizeof path, "%.3900s/probing", dir);
    return access(path, F_OK) == 0 ? FOREIGN : NOTHING;
}

/* Chooses the folder to install into: the interpreter's site-packages or, if that cannot be written, the user's. Returns 0, or the exit code. */
static int choose_dir(struct place *p) {
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", p->site);
    for (char *slash;
         access(parent, F_OK) < 0 && (slash = strrchr(parent, '/')) && slash != parent;)
        *slash = 0;
    if (access(parent, W_OK | X_OK) == 0)
        snprintf(p->dir, sizeof p->dir, "%s", p->site);
    else if (*p->user)
        snprintf(p->dir, sizeof p->dir, "%s", p->user);
    else
        return tool_fail("cannot write to %s: %s (sudo, or use a virtual environment)", p->site,
                         strerror(EACCES));
    int there = what_is_in(p->dir);
    if (there == FOREIGN)
        return tool_fail(
            "cannot install: %s/probing is another package of that name (pip uninstall probing first)",
            p->dir);
    if (there == PIPS)
        return tool_fail(
            "cannot install: pip has put this package into %s (pip uninstall probing first)",
            p->dir);
    return 0;
}

/* ---- doing it ---- */

static int install(struct place *p, int dry_run) {
    char source[PATH_MAX] = "", agent[PATH_MAX], package[PATH_MAX], from[PATH_MAX], to[PATH_MAX],
         out[PATH_MAX];
    struct dirent *e;
    DIR *d;
    int rc = tool_prefix(from, sizeof from), n = 0;

    if (rc == 0)
        rc = join(source, from, "share/probing/python");
    if (rc == 0 && tool_lib("libprobing-agent.so", agent, sizeof agent) < 0)
        return tool_fail("cannot find its part %s (install it again, or run make)", agent);
    if (rc < 0 || join(from, source, "probing") < 0 || !(d = opendir(from)))
        return tool_fail("cannot find its part %s (install it again, or run make)", source);
    if ((rc = choose_dir(p)) != 0 || join(package, p->dir, "probing") < 0) {
        closedir(d);
        return rc ? rc : TOOL_FAILED;
    }
    strcpy(to, package); /* what cannot be written, if there is an error */
    if (!dry_run)
        rc = make_dirs(package);
    while (rc == 0 && (e = readdir(d))) {
        size_t len = strlen(e->d_name);
        char name[PATH_MAX];
        if (len < 4 || strcmp(e->d_name + len - 3, ".py"))
            continue;
        if (join(name, from, e->d_name) < 0 || join(to, package, e->d_name) < 0)
            rc = -ENAMETOOLONG;
        else if (!dry_run)
            rc = copy_file(name, to);
        n += rc == 0;
    }
    closedir(d);
    if (rc == 0 && join(to, package, PATH_FILE) == 0 && !dry_run)
        rc = write_file(to, agent, strlen(agent));
    if (rc == 0 && join(from, source, PTH) == 0 && join(to, p->dir, PTH) == 0 && !dry_run)
        rc = copy_file(from, to);
    if (rc < 0)
        return tool_fail("cannot write %s: %s", to, strerror(-rc));
    if (n == 0)
        return tool_fail("cannot find its part %s/*.py (install it again, or run make)", from);
    printf("%s%s/ (%d files)\n%s%s/" PTH "\n", dry_run ? "would write " : "", package, n + 1,
           dry_run ? "would write " : "", p->dir);
    if (dry_run)
        return TOOL_OK;
    if (ask_python(p->exe, "import probing, probing._load; probing._load.load()", out,
                   sizeof out) != 0)
        return tool_fail("%s cannot import what was installed (its last words are above)", p->exe);
    tool_say("installed for %s: PROBING=1 %s train.py records, `import probing` works", p->exe,
             p->exe);
    return TOOL_OK;
}

static int uninstall(const struct place *p, int dry_run) {
    const char *const dirs[] = {p->site, p->user};
    char path[PATH_MAX], cache[PATH_MAX];
    int found = 0;

    for (int i = 0; i < 2; i++) {
        if (!*dirs[i] || what_is_in(dirs[i]) != OURS || join(path, dirs[i], "probing") < 0)
            continue;
        if (access(dirs[i], W_OK) < 0)
            return tool_fail("cannot write to %s: %s (sudo)", dirs[i], strerror(errno));
        printf("%s%s/\n%s%s/" PTH "\n", dry_run ? "would remove " : "removed ", path,
               dry_run ? "would remove " : "removed ", dirs[i]);
        found++;
        if (dry_run)
            continue;
        char pth[PATH_MAX];
        if (join(pth, dirs[i], PTH) == 0)
            unlink(pth); /* first, so that it never points at a package that is half removed */
        if (join(cache, path, "__pycache__") == 0)
            remove_dir(cache);
        remove_dir(path);
    }
    if (found)
        return TOOL_OK;
    tool_say("nothing to remove: %s has no probing that python-install put there%s", p->exe,
             what_is_in(p->site) == PIPS ? " (pip has: pip uninstall probing)" : "");
    return TOOL_PARTIAL;
}

int cmd_python_install(int argc, char **argv) {
    struct options o = {.python = "python3"};
    struct place p = {.exe = ""};
    const struct tool_option options[] = {OPTION_TEXT("python", 'p', &o.python),
                                          OPTION_FLAG("uninstall", 0, &o.uninstall),
                                          OPTION_FLAG("dry-run", 'n', &o.dry_run),
                                          {0}};
    int rc = tool_options(argc, argv, help, options);

    if (rc != TOOL_OK)
        return rc;
    if (optind < argc)
        return tool_usage("unexpected argument '%s'", argv[optind]);
    if ((rc = find_place(o.python, &p)) != 0)
        return rc;
    return o.uninstall ? uninstall(&p, o.dry_run) : install(&p, o.dry_run);
}
