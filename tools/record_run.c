/* SPDX-License-Identifier: Apache-2.0 */
#include "record_run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../writer/sys.h"

static const int passed_on[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                                SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH};
#define NPASSED (sizeof passed_on / sizeof *passed_on)

/* The child that the signal handler sends to; 0: there is none. */
static volatile pid_t child;

static void pass_on(int sig, siginfo_t *si, void *context) {
    int saved = errno;
    pid_t to = child;

    (void)context;
    /* Not passed on are signals from the terminal (SI_KERNEL), which go to the whole group, and those from the
     * child, which it sends to its parent and not to itself (sudo does the same). */
    if (si->si_code <= 0 && to > 0 && si->si_pid != to)
        kill(to, sig);
    errno = saved;
}

void run_signals(int ours) {
    static const int deadly[] = {SIGPIPE, SIGXFSZ};
    static struct sigaction theirs[2];
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    for (int i = 0; i < 2; i++)
        sigaction(deadly[i], ours ? &ignore : &theirs[i], ours ? &theirs[i] : NULL);
}

static int in_foreground(void) {
    int tty = open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);

    if (tty < 0)
        return 0;
    int yes = tcgetpgrp(tty) == getpgrp();
    close(tty);
    return yes;
}

/*
 * Handles a child that has stopped. Ctrl-Z stops the whole group, us included: nothing is to be done. But a program that
 * reads Ctrl-Z as a key stops only itself: then we must stop as well, so that the shell sees its job stop, or the terminal hangs.
 */
static void child_stopped(pid_t pid, int sig) {
    char state;

    if (sig != SIGTSTP && sig != SIGTTIN && sig != SIGTTOU)
        return;             /* kill -STOP: its sender will continue the child, but not us */
    sys_sleep(20 * SYS_MS); /* a SIGTSTP that is on its way to us stops us here */
    if (proc_task(pid, 0, NULL, 0, &state) == 0 && state == 'T' && in_foreground())
        raise(SIGSTOP);
}

static void wait_for(pid_t pid, int *status) {
    siginfo_t si;

    for (;;) {
        memset(&si, 0, sizeof si);
        /* WNOWAIT: the pid is not reused while the handler could still send to it. */
        if (waitid(P_PID, (id_t)pid, &si, WEXITED | WSTOPPED | WNOWAIT) < 0) {
            if (errno == EINTR)
                continue;
            break;
        }
        if (si.si_code != CLD_STOPPED && si.si_code != CLD_TRAPPED)
            break;
        siginfo_t consumed;
        waitid(P_PID, (id_t)pid, &consumed, WSTOPPED | WNOHANG);
        child_stopped(pid, si.si_status);
    }
    child = 0;
    while (waitpid(pid, status, 0) < 0 && errno == EINTR)
        ;
}

/*
 * Handlers also for what is ignored, as SIGINT is by a job that a script starts with "&": the program may set a handler of its own.
 * ignore_again() undoes it in the child, whose program inherits what we were started with, and in the parent afterwards.
 */
static void catch_all(struct sigaction *was) {
    struct sigaction sa = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};

    sigfillset(&sa.sa_mask);
    for (size_t i = 0; i < NPASSED; i++)
        sigaction(passed_on[i], &sa, &was[i]);
}

static void ignore_again(const struct sigaction *was) {
    for (size_t i = 0; i < NPASSED; i++) {
        if (was[i].sa_handler == SIG_IGN)
            sigaction(passed_on[i], &was[i], NULL);
    }
}

/* What the program gets as we got it. */
struct inherited {
    sigset_t mask;
    struct sigaction was[NPASSED];
    void (*chld)(int);
    int at_parents_end;
};

static void run_in_child(char **argv, void (*setup)(void *), void *arg, const struct inherited *in,
                         int fd) {
    if (in->at_parents_end) /* not inherited by fork: the signal that we get when our parent ends, the program gets when we end */
        prctl(PR_SET_PDEATHSIG, in->at_parents_end);
    setup(arg);
    run_signals(0);
    ignore_again(in->was);
    signal(SIGCHLD, in->chld);
    sigprocmask(SIG_SETMASK, &in->mask, NULL); /* exec removes the handlers */
    execvp(argv[0], argv);
    int e = errno;
    while (write(fd, &e, sizeof e) < 0 && errno == EINTR)
        ;
    _exit(e == ENOENT ? 127 : 126);
}

int run_child(char **argv, void (*setup)(void *), void *arg, struct run_result *out) {
    struct inherited in = {.at_parents_end = 0};
    sigset_t all;
    int fds[2], status = 0;

    prctl(PR_GET_PDEATHSIG, &in.at_parents_end);
    memset(out, 0, sizeof *out);
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &in.mask);
    catch_all(in.was);
    in.chld = signal(SIGCHLD, SIG_DFL); /* where it is ignored, no exit code is kept for us */
    uint64_t start = sys_now();
    pid_t pid = fork();
    if (pid == 0)
        run_in_child(argv, setup, arg, &in, fds[1]);
    int error = pid < 0 ? -errno : 0;
    child = out->pid = pid > 0 ? pid : 0;
    sigprocmask(SIG_SETMASK, &in.mask, NULL);
    close(fds[1]);
    if (error == 0) {
        ssize_t n;
        while ((n = read(fds[0], &out->exec_error, sizeof out->exec_error)) < 0 && errno == EINTR)
            ;
        if (n != sizeof out->exec_error)
            out->exec_error = 0;
        wait_for(pid, &status);
        out->wall_ns = sys_now() - start;
        if (WIFSIGNALED(status))
            out->signal = WTERMSIG(status);
        else
            out->status = WEXITSTATUS(status);
    }
    ignore_again(in.was);
    signal(SIGCHLD, in.chld);
    close(fds[0]);
    return error;
}

static int usable(const char *path) {
    struct stat st;

    if (stat(path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR ? -ENOENT : -errno;
    return S_ISREG(st.st_mode) && access(path, X_OK) == 0 ? 0 : -EACCES;
}

int run_find(const char *command, char *path, unsigned long n) {
    const char *dirs = getenv("PATH");
    int best = -ENOENT;

    if (!*command)
        return -ENOENT;
    if (strchr(command, '/')) {
        snprintf(path, n, "%s", command);
        return usable(command);
    }
    if (!dirs)
        dirs = "/bin:/usr/bin";
    for (const char *p = dirs;; p++) {
        size_t len = strcspn(p, ":");
        if (snprintf(path, n, "%.*s%s%s", (int)len, p, len ? "/" : "", command) < (int)n) {
            int rc = usable(path);
            if (rc == 0)
                return 0;
            if (rc == -EACCES)
                best = rc;
        }
        p += len;
        if (!*p)
            break;
    }
    snprintf(path, n, "%s", command);
    return best;
}
