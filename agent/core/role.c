/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/role.h"

#include <stdio.h>

#include "writer/sys.h"

#define FRAMES 64

static struct {
    int32_t given_rank, given_world; /* (a) rank and world size from torch.distributed, or -1 */
    int32_t known_rank;              /* (a) rank that the last role_find() returned */
    int32_t parent_rank;             /* rank of the process that forked this one */
    int worker;                      /* whether the last role_find() returned "worker" */
} role = {-1, -1, -1, -1, 0};

void role_set_ranks(int32_t rank, int32_t world_size) {
    __atomic_store_n(&role.given_world, world_size, __ATOMIC_RELAXED);
    __atomic_store_n(&role.given_rank, rank, __ATOMIC_RELEASE);
}

int role_has_rank(void) {
    return __atomic_load_n(&role.known_rank, __ATOMIC_RELAXED) >= 0 ||
           __atomic_load_n(&role.given_rank, __ATOMIC_RELAXED) >= 0;
}

void role_after_fork(void) {
    role.parent_rank = role.known_rank >= 0 ? role.known_rank : role.given_rank;
    role.given_rank = role.given_world = role.known_rank = -1;
}

/* ---- launchers are recognised by their command line ---- */

/* `arg`: name of the program, of the script, or of the module after -m. */
static int is_launcher_name(const char *arg) {
    static const char names[] =
        " torchrun torch.distributed.run torch.distributed.launch horovodrun colossalai accelerate"
        " accelerate.commands.launch deepspeed deepspeed.launcher.launch deepspeed.launcher.runner ";
    char word[64];
    snprintf(word, sizeof word, " %s ", basename(arg));
    if (strstr(names, word))
        return 1;
    return strstr(arg, "torch/distributed/run.py") || strstr(arg, "torch/distributed/launch.py");
}

static int is_launcher(void) {
    char buf[4096];
    size_t n = proc_read_file("/proc/thread-self/cmdline", buf, sizeof buf);
    /* Skip the interpreter and its options: the next word is the script, or the module after -m. */
    for (const char *arg = buf + strlen(buf) + 1; arg < buf + n; arg += strlen(arg) + 1) {
        if (!strcmp(arg, "-W") || !strcmp(arg, "-X"))
            arg += 3; /* the next word is its value */
        else if (strcmp(arg, "-m") && (arg[0] != '-' || arg[1] == 'm'))
            return is_launcher_name(arg[0] == '-' ? arg + 2 : arg);
    }
    return 0;
}

/* ---- DataLoader workers are recognised by the function that they run ---- */

static int runs_worker_loop(const struct agent_python *py) {
    struct pywalk pw;
    struct pywalk_thread threads[64];
    struct pywalk_frame frames[FRAMES];
    struct pywalk_code code;
    int more, cut;
    if (!py->found.target.version || pywalk_init(&pw, pywalk_process(getpid()), &py->found.target))
        return 0;
    int n = pywalk_threads(&pw, threads, 64, &more);
    for (int i = 0; i < n; i++) {
        if (!(threads[i].flags & PYWALK_MAIN))
            continue;
        int depth = pywalk_frames(&pw, threads[i].tstate, frames, FRAMES, &cut);
        for (int k = 0; k < depth; k++) {
            if (!pywalk_code(&pw, frames[k].code, &code) && !strcmp(code.name, "_worker_loop") &&
                strstr(code.file, "torch/utils/data/_utils/worker.py"))
                return 1;
        }
    }
    return 0;
}

/* ---- ranks and role ---- */

static void find_master(struct agent_ranks *r) {
    char address[80], port[16];
    if (config_env("MASTER_ADDR", address, sizeof address) <= 0)
        return;
    if (config_env("MASTER_PORT", port, sizeof port) <= 0)
        port[0] = 0;
    snprintf(r->master, sizeof r->master, "%s%s%s", address, *port ? ":" : "", port);
}

int role_is_worker(void) {
    return role.worker;
}

void role_find(struct agent_ranks *r, const struct agent_python *py, const char *how) {
    static pid_t dataloader; /* process that was one: near its end, the stack no longer shows it */
    int forked = !strcmp(how, "fork");
    memset(r, 0, sizeof *r);
    config_ranks(r);
    if (r->rank < 0) {
        r->rank = __atomic_load_n(&role.given_rank, __ATOMIC_ACQUIRE);
        if (r->rank >= 0)
            r->world_size = __atomic_load_n(&role.given_world, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&role.known_rank, r->rank, __ATOMIC_RELAXED);
    find_master(r);
    if (dataloader != getpid() && runs_worker_loop(py))
        dataloader = getpid();
    if (dataloader == getpid())
        strcpy(r->role, "dataloader");
    else if (r->rank >= 0 && !(forked && r->rank == role.parent_rank))
        strcpy(r->role, "worker");
    else if (r->rank < 0 && !forked && is_launcher())
        strcpy(r->role, "launcher");
    role.worker = !strcmp(r->role, "worker");
}
