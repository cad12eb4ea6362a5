/* SPDX-License-Identifier: Apache-2.0 */
#include "native.h"

#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image_id.h"
#include "native_files.h"
#include "origin.h"
#include "proc.h"

/* Names found already, by address: libdw searches a symbol table from end to end, and the threads of a pool
 * all stand at the same places. */
#define NAMES 4096
struct known_name {
    uint64_t probe;
    struct native_name name;
};

struct native {
    Dwfl *dwfl;
    struct known_name *names[NAMES];
    struct native_files files;
    unsigned flags;
    int attached;
    char header[sizeof(Elf64_Ehdr)];
    Elf *machine;
    /* during a walk */
    int (*read)(void *ctx, uint64_t addr, void *buf, size_t n);
    void *ctx;
    pid_t tid;
    const struct user_regs_struct *regs;
    int all; /* registers; else the pc and the stack pointer */
    struct native_frame *out;
    size_t max, n;
};

/* ---- what libdwfl asks us ---- */

static pid_t next_thread(Dwfl *dwfl, void *arg, void **thread_arg) {
    (void)dwfl;
    (void)arg;
    (void)thread_arg;
    return 0; /* threads are asked for one by one */
}

static bool get_thread(Dwfl *dwfl, pid_t tid, void *arg, void **thread_arg) {
    struct native *n = arg;

    (void)dwfl;
    *thread_arg = n;
    return n->regs && n->tid == tid;
}

static bool read_word(Dwfl *dwfl, Dwarf_Addr addr, Dwarf_Word *result, void *arg) {
    struct native *n = arg;

    (void)dwfl;
    return n->read(n->ctx, addr, result, sizeof *result) == 0;
}

static bool initial_registers(Dwfl_Thread *thread, void *arg) {
    struct native *n = arg;
    const struct user_regs_struct *r = n->regs;
    /* in DWARF's order */
    Dwarf_Word w[17] = {r->rax, r->rdx, r->rcx, r->rbx, r->rsi, r->rdi, r->rbp, r->rsp, r->r8,
                        r->r9,  r->r10, r->r11, r->r12, r->r13, r->r14, r->r15, r->rip};

    if (n->all)
        return dwfl_thread_state_registers(thread, 0, 17, w);
    /* 7 is the stack pointer, 16 the pc. A frame that needs another one ends the walk. */
    return dwfl_thread_state_registers(thread, 7, 1, &w[7]) &&
           dwfl_thread_state_registers(thread, 16, 1, &w[16]);
}

static int find_elf(Dwfl_Module *mod, void **userdata, const char *name, Dwarf_Addr base,
                    char **file_name, Elf **elf) {
    struct native *n = *userdata;

    (void)mod;
    (void)name;
    return native_files_open(&n->files, base, file_name, elf);
}

static int find_debuginfo(Dwfl_Module *mod, void **userdata, const char *modname, Dwarf_Addr base,
                          const char *file_name, const char *debuglink, GElf_Word crc, char **out) {
    const unsigned char *id;
    GElf_Addr vaddr;
    char path[128];
    int len = dwfl_module_build_id(mod, &id, &vaddr), at, fd;

    (void)modname;
    (void)base;
    (void)file_name;
    (void)debuglink;
    (void)crc;
    if (!(((struct native *)*userdata)->flags & NATIVE_DEBUG) || len < 2 || len > 32)
        return -1;
    at = snprintf(path, sizeof path, "/usr/lib/debug/.build-id/%02x/", id[0]);
    for (int i = 1; i < len; i++)
        at += snprintf(path + at, sizeof path - (size_t)at, "%02x", id[i]);
    snprintf(path + at, sizeof path - (size_t)at, ".debug");
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        *out = strdup(path);
    return fd;
}

static const Dwfl_Callbacks callbacks = {.find_elf = find_elf, .find_debuginfo = find_debuginfo};
static const Dwfl_Thread_Callbacks thread_callbacks = {.next_thread = next_thread,
                                                       .get_thread = get_thread,
                                                       .memory_read = read_word,
                                                       .set_initial_registers = initial_registers};

/* ---- open, walk, name ---- */

static int set_userdata(Dwfl_Module *mod, void **userdata, const char *name, Dwarf_Addr start,
                        void *arg) {
    (void)mod;
    (void)name;
    (void)start;
    *userdata = arg;
    return DWARF_CB_OK;
}

/* Consecutive mappings of one file are a module; a new one begins where the file begins again. */
static int report(struct native *n) {
    const struct proc_maps *maps = n->files.maps;
    size_t i = 0;

    dwfl_report_begin(n->dwfl);
    while (i < maps->n) {
        const struct proc_map *m = &maps->v[i++];
        uint64_t end = m->end;

        if ((m->path[0] != '/' && strcmp(m->path, "[vdso]") != 0) || m->offset != 0)
            continue;
        /* Anonymous memory in between is its .bss, or a gap. */
        for (size_t k = i; k < maps->n; k++) {
            const struct proc_map *next = &maps->v[k];
            if (next->path[0] == 0)
                continue;
            if (next->offset == 0 || strcmp(next->path, m->path) != 0)
                break;
            end = next->end;
            i = k + 1;
        }
        if (!dwfl_report_module(n->dwfl, m->path, m->start, end))
            return -ENOMEM;
    }
    if (dwfl_report_end(n->dwfl, NULL, NULL) != 0)
        return -EBADMSG;
    dwfl_getmodules(n->dwfl, set_userdata, n, 0);
    return 0;
}

static int open_files(struct native **out, unsigned flags, struct native **made) {
    struct native *n = calloc(1, sizeof *n);

    *out = NULL;
    *made = n;
    if (!n)
        return -ENOMEM;
    n->flags = flags;
    n->dwfl = dwfl_begin(&callbacks);
    if (n->dwfl)
        return 0;
    free(n);
    return -ENOMEM;
}

static int finish_open(struct native **out, struct native *n, int rc) {
    if (rc == 0)
        rc = report(n);
    if (rc == 0)
        *out = n;
    else
        native_close(n);
    return rc;
}

int native_open(struct native **out, pid_t pid, unsigned flags) {
    struct native *n;
    int rc = open_files(out, flags, &n);

    return rc < 0 ? rc : finish_open(out, n, native_files_process(&n->files, pid));
}

int native_open_origin(struct native **out, struct origin *s, unsigned flags) {
    struct native *n;
    int rc = open_files(out, flags, &n);

    return rc < 0 ? rc : finish_open(out, n, native_files_origin(&n->files, s));
}

void native_close(struct native *n) {
    if (n && n->dwfl)
        dwfl_end(n->dwfl);
    for (size_t i = 0; n && i < NAMES; i++)
        free(n->names[i]);
    if (n && n->machine)
        elf_end(n->machine);
    if (n)
        native_files_free(&n->files);
    free(n);
}

static int each_frame(Dwfl_Frame *state, void *arg) {
    struct native *n = arg;
    struct native_frame *f;
    bool activation = false;
    Dwarf_Addr pc;

    if (n->n >= n->max || !dwfl_frame_pc(state, &pc, &activation))
        return DWARF_CB_ABORT;
    if (pc == 0)
        return DWARF_CB_OK;
    f = &n->out[n->n++];
    f->pc = pc;
    f->probe = activation ? pc : pc - 1;
    return DWARF_CB_OK;
}

/* libdw wants an ELF file for the machine: any will do, and of a core none may be at hand. */
static int attach(struct native *n, pid_t pid) {
    static const Elf64_Ehdr ehdr = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_DYN,
        .e_machine = EM_X86_64,
        .e_version = EV_CURRENT,
        .e_ehsize = sizeof ehdr,
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_shentsize = sizeof(Elf64_Shdr)};

    if (!n->machine) {
        memcpy(n->header, &ehdr, sizeof ehdr);
        n->machine = elf_memory(n->header, sizeof n->header);
    }
    return n->machine && dwfl_attach_state(n->dwfl, n->machine, pid, &thread_callbacks, n);
}

static int walk(struct native *n, pid_t pid, struct native_frame *out, size_t max, int *complete) {
    int rc;

    n->out = out;
    n->max = max;
    n->n = 0;
    if (!n->attached && !attach(n, pid))
        rc = -1;
    else {
        n->attached = 1;
        rc = dwfl_getthread_frames(n->dwfl, n->tid, each_frame, n);
    }
    *complete = rc == 0;
    if (n->n == 0 && max > 0) {
        out[0].pc = out[0].probe = n->regs->rip;
        n->n = 1;
    }
    n->regs = NULL;
    return (int)n->n;
}

int native_stack(struct native *n, struct stop *s, size_t i, struct native_frame *out, size_t max,
                 int *complete) {
    n->read = stop_read;
    n->ctx = s;
    n->tid = s->v[i].tid;
    n->regs = &s->v[i].regs;
    n->all = 1;
    return walk(n, s->pid, out, max, complete);
}

int native_walk(struct native *n, struct origin *s, const struct origin_thread *t,
                struct native_frame *out, size_t max, int *complete) {
    int count;

    *complete = 0;
    if (t->known == REGS_NONE)
        return 0;
    n->read = origin_read;
    n->ctx = s;
    n->tid = t->tid;
    n->regs = &t->regs;
    n->all = t->known == REGS_ALL;
    count = walk(n, s->pid, out, max, complete);
    /* Where a register that is not known was needed, libdw takes it for the first frame. */
    *complete &= n->all;
    return count;
}

static void find_name(struct native *n, const struct native_frame *f, struct native_name *out) {
    Dwfl_Module *mod = dwfl_addrmodule(n->dwfl, f->probe);
    const char *file = NULL, *name, *base;
    GElf_Off offset = 0;
    GElf_Sym sym;

    *out = (struct native_name){0};
    if (!mod)
        return;
    name = dwfl_module_info(mod, NULL, NULL, NULL, NULL, NULL, &file, NULL);
    if (!file)
        file = name;
    if (file) {
        base = strrchr(file, '/');
        snprintf(out->module, sizeof out->module, "%s", base ? base + 1 : file);
        snprintf(out->path, sizeof out->path, "%s", file);
    }
    name = dwfl_module_addrinfo(mod, f->probe, &offset, &sym, NULL, NULL, NULL);
    /* A symbol of known size that ends before the address is not the function we are in. */
    if (!name ||
        (sym.st_size ? offset >= sym.st_size : offset > 0 && GELF_ST_TYPE(sym.st_info) != STT_FUNC))
        return;
    snprintf(out->symbol, sizeof out->symbol, "%.*s", (int)strcspn(name, "@"), name);
    out->offset = offset;
}

void native_name(struct native *n, const struct native_frame *f, struct native_name *out) {
    struct known_name **slot = &n->names[(f->probe * 0x9e3779b97f4a7c15u) >> 52];

    if (!*slot || (*slot)->probe != f->probe) {
        if (!*slot && !(*slot = malloc(sizeof **slot))) {
            find_name(n, f, out);
            return;
        }
        find_name(n, f, &(*slot)->name);
        (*slot)->probe = f->probe;
    }
    *out = (*slot)->name;
}
