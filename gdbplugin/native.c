/* SPDX-License-Identifier: Apache-2.0 */
#include "native.h"
#include "agent/pywalk/image.h"
#include "core.h"
#include "traces/plain_file.h"

#include <sys/stat.h>

#define MAX_IMAGE (512u << 20)

/* ---- the ELF files behind the mappings ---- */

/*
 * Of a live process: the very file that is mapped, through its own root directory (a container), else what of it is
 * in memory (deleted or replaced). Of a core: core.h's. Of what GDB has: the file at this path when its build-id is that in
 * memory, else memory. So no other file than the one that runs is ever used.
 */
struct files {
    struct native_source s;
    void **images; /* what elf_memory() was given: must stay */
    size_t nimages;
};

static void free_files(struct files *f) {
    for (size_t i = 0; i < f->nimages; i++)
        free(f->images[i]);
    free(f->images);
    *f = (struct files){0};
}

/* ---- the file as it lies in memory ---- */

static void *keep(struct files *f, size_t n) {
    void *p = array_grow(&f->images, f->nimages, sizeof *f->images) == 0 ? calloc(1, n) : NULL;

    if (p)
        f->images[f->nimages++] = p;
    return p;
}

/* Puts the segments back to where they are in the file. Section headers are not loaded: libdw finds the dynamic symbols and
 * the call frame information by the program headers. */
static Elf *from_memory(struct files *f, uint64_t start) {
    struct pywalk_elf elf;
    const Elf64_Phdr *p = elf.p;
    uint64_t end = 0, base = 0;
    char *image;
    int first = 1;

    if (pywalk_elf_read(f->s.mem, start, &elf) != 0)
        return NULL;
    for (unsigned i = 0; i < elf.e.e_phnum; i++) {
        if (p[i].p_type != PT_LOAD)
            continue;
        if (first)
            base = start - (p[i].p_vaddr - p[i].p_offset);
        first = 0;
        if (p[i].p_filesz > MAX_IMAGE || p[i].p_offset > MAX_IMAGE)
            return NULL;
        if (p[i].p_offset + p[i].p_filesz > end)
            end = p[i].p_offset + p[i].p_filesz;
    }
    if (end < sizeof elf.e || !(image = keep(f, end)))
        return NULL;
    for (unsigned i = 0; i < elf.e.e_phnum; i++) {
        if (p[i].p_type == PT_LOAD && p[i].p_filesz &&
            f->s.mem.read(f->s.mem.ctx, base + p[i].p_vaddr, image + p[i].p_offset,
                          p[i].p_filesz) != 0)
            return NULL;
    }
    memset(image + offsetof(Elf64_Ehdr, e_shoff), 0, sizeof elf.e.e_shoff);
    memset(image + offsetof(Elf64_Ehdr, e_shnum), 0, sizeof elf.e.e_shnum);
    memset(image + offsetof(Elf64_Ehdr, e_shstrndx), 0, sizeof elf.e.e_shstrndx);
    return elf_memory(image, end);
}

/* ---- the file itself ---- */

/* A regular file with that number (0: any), -1 else. Looked at before it is opened: to open a device or a FIFO is to do something. */
static int open_regular(const char *path, uint64_t inode) {
    AUTO_CLOSE int at = open(path, O_PATH | O_CLOEXEC);
    char again[40];
    struct stat st;

    if (at < 0 || fstat(at, &st) < 0 || !S_ISREG(st.st_mode) || (inode && st.st_ino != inode))
        return -1;
    snprintf(again, sizeof again, "/proc/self/fd/%d", at);
    return open(again, O_RDONLY | O_CLOEXEC);
}

/* Overlay file systems show another inode in the maps than stat() does: the link in map_files settles it. */
static int open_live(const struct files *f, const struct proc_map *m) {
    char path[4200];
    int fd;

    snprintf(path, sizeof path, "/proc/%d/map_files/%lx-%lx", f->s.pid, m->start, m->end);
    fd = open_regular(path, 0);
    if (fd >= 0 || m->deleted)
        return fd;
    snprintf(path, sizeof path, "/proc/%d/root%s", f->s.pid, m->path);
    return open_regular(path, m->inode);
}

static int read_fd(void *fd, uint64_t at, void *buf, size_t n) {
    return pread(*(int *)fd, buf, n, (off_t)at) == (ssize_t)n ? 0 : -EFAULT;
}

static int open_given(const struct files *f, const struct proc_map *m) {
    unsigned char want[PYWALK_BUILD_ID], have[PYWALK_BUILD_ID];
    int fd = plain_file_open(m->path);
    size_t n;

    if (fd < 0)
        return -1;
    n = pywalk_build_id(f->s.mem, m->start, want);
    if (n == 0 || pywalk_build_id((struct pywalk_mem){read_fd, &fd}, 0, have) != n ||
        memcmp(want, have, n) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* For the find_elf callback: a descriptor, or -1 with *elf set (from memory), or -1. */
static int open_elf(struct files *f, uint64_t start, char **name, Elf **elf) {
    const struct proc_map *m = proc_maps_at(f->s.maps, start);
    int fd = -1;

    if (!m)
        return -1;
    if (m->path[0] == '/') {
        if (f->s.core) {
            struct core_module *mod = core_module(f->s.core, start);
            if (mod)
                mod->wanted = 1;
            if (mod && mod->bytes)
                fd = open(mod->found, O_RDONLY | O_CLOEXEC);
        } else
            fd = f->s.pid ? open_live(f, m) : open_given(f, m);
    }
    if (fd < 0)
        *elf = from_memory(f, start);
    if (fd >= 0 || *elf)
        *name = strdup(m->path);
    return fd;
}

/* ---- an unwinder ---- */

struct native {
    Dwfl *dwfl;
    struct native_names *names;
    struct files files;
    unsigned flags;
    int attached;
    char header[sizeof(Elf64_Ehdr)];
    Elf *machine;
    /* during a walk */
    struct pywalk_mem mem;
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
    return n->mem.read(n->mem.ctx, addr, result, sizeof *result) == 0;
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
    return open_elf(&n->files, base, file_name, elf);
}

/* Only by build-id, under /usr/lib/debug. */
static int find_debuginfo(Dwfl_Module *mod, void **userdata, const char *modname, Dwarf_Addr base,
                          const char *file_name, const char *debuglink, GElf_Word crc, char **out) {
    if (!(((struct native *)*userdata)->flags & NATIVE_DEBUG))
        return -1;
    return dwfl_build_id_find_debuginfo(mod, userdata, modname, base, file_name, debuglink, crc,
                                        out);
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
    const struct proc_maps *maps = n->files.s.maps;
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

int native_open(struct native **out, const struct native_source *source, unsigned flags) {
    struct native *n = calloc(1, sizeof *n);
    int rc = -ENOMEM;

    *out = NULL;
    if (!n)
        return rc;
    n->flags = flags;
    n->files.s = *source;
    n->dwfl = dwfl_begin(&callbacks);
    n->names = n->dwfl ? native_names_new(n->dwfl) : NULL;
    if (n->names)
        rc = report(n);
    if (rc == 0)
        *out = n;
    else
        native_close(n);
    return rc;
}

void native_close(struct native *n) {
    if (n && n->dwfl)
        dwfl_end(n->dwfl);
    if (n)
        native_names_free(n->names);
    if (n && n->machine)
        elf_end(n->machine);
    if (n)
        free_files(&n->files);
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
static int attach(struct native *n) {
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
    return n->machine && dwfl_attach_state(n->dwfl, n->machine, 1, &thread_callbacks, n);
}

int native_walk(struct native *n, struct pywalk_mem mem, pid_t tid,
                const struct user_regs_struct *regs, int all, struct native_frame *out, size_t max,
                int *complete) {
    int rc = -1;

    n->mem = mem;
    n->tid = tid;
    n->regs = regs;
    n->all = all;
    n->out = out;
    n->max = max;
    n->n = 0;
    if (!n->attached)
        n->attached = attach(n);
    if (n->attached)
        rc = dwfl_getthread_frames(n->dwfl, n->tid, each_frame, n);
    /* Where a register that is not known was needed, libdw takes it for the first frame. */
    *complete = rc == 0 && all;
    if (n->n == 0 && max > 0) {
        out[0].pc = out[0].probe = n->regs->rip;
        n->n = 1;
    }
    n->regs = NULL;
    return (int)n->n;
}

void native_name(struct native *n, const struct native_frame *f, struct native_name *out) {
    native_names_at(n->names, f->probe, out);
}

size_t native_functions(struct native *n, const struct native_frame *f,
                        const struct inlined_frame **out) {
    return native_names_functions(n->names, f->probe, out);
}
