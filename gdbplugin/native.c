/* SPDX-License-Identifier: Apache-2.0 */
#include "native.h"
#include "agent/pywalk/image.h"
#include "core.h"
#include "traces/plain_file.h"

#include <sys/stat.h>

#define MAX_IMAGE (512u << 20)

struct native {
    Dwfl *dwfl;
    struct native_names *names;
    struct native_source s;
    void **images; /* memory given to elf_memory(), which must stay */
    size_t nimages;
    unsigned flags;
    int attached;
    Elf64_Ehdr header;
    Elf *machine;
    struct walk {
        struct pywalk_mem mem;
        pid_t tid;
        const struct user_regs_struct *regs; /* NULL: no thread is being walked */
        int all;                             /* all registers; else only pc and stack pointer */
        struct native_frame *out;
        size_t max, n;
    } walk;
};

/*
 * ---- the ELF files behind the mappings ----
 * Live process: the file that is mapped, through the process's own root directory (a container), or its contents in
 * memory when it was deleted or replaced. Core: the file found by core.h. GDB's target: the file at this path if its build-id
 * is the one in memory, else memory. So a file other than the running one is never used.
 */

/* ---- the file's contents in memory ---- */

static void *keep(struct native *n, size_t size) {
    void *p = array_grow(&n->images, n->nimages, sizeof *n->images) == 0 ? calloc(1, size) : NULL;

    if (p)
        n->images[n->nimages++] = p;
    return p;
}

/* Puts the segments back to their places in the file. Section headers are not in memory: libdw finds the dynamic
 * symbols and the call frame information by the program headers. */
static Elf *from_memory(struct native *n, uint64_t start) {
    struct pywalk_elf elf;
    const Elf64_Phdr *p = elf.p;
    uint64_t end = 0, base = 0;
    char *image;
    int first = 1;

    if (pywalk_elf_read(n->s.mem, start, &elf) != 0)
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
    if (end < sizeof elf.e || !(image = keep(n, end)))
        return NULL;
    for (unsigned i = 0; i < elf.e.e_phnum; i++) {
        if (p[i].p_type == PT_LOAD && p[i].p_filesz &&
            n->s.mem.read(n->s.mem.ctx, base + p[i].p_vaddr, image + p[i].p_offset,
                          p[i].p_filesz) != 0)
            return NULL;
    }
    memset(image + offsetof(Elf64_Ehdr, e_shoff), 0, sizeof elf.e.e_shoff);
    memset(image + offsetof(Elf64_Ehdr, e_shnum), 0, sizeof elf.e.e_shnum);
    memset(image + offsetof(Elf64_Ehdr, e_shstrndx), 0, sizeof elf.e.e_shstrndx);
    return elf_memory(image, end);
}

/* ---- the file itself ---- */

/* Opens a regular file with that inode number (0: any), or returns -1. It is checked before it is opened, since opening a device or a FIFO has side effects. */
static int open_regular(const char *path, uint64_t inode) {
    AUTO_CLOSE int at = open(path, O_PATH | O_CLOEXEC);
    char again[40];
    struct stat st;

    if (at < 0 || fstat(at, &st) < 0 || !S_ISREG(st.st_mode) || (inode && st.st_ino != inode))
        return -1;
    snprintf(again, sizeof again, "/proc/self/fd/%d", at);
    return open(again, O_RDONLY | O_CLOEXEC);
}

/* On overlay file systems the inode in the maps differs from that of stat(), so try the link in map_files first. */
static int open_live(pid_t pid, const struct proc_map *m) {
    char path[4200];

    snprintf(path, sizeof path, "/proc/%d/map_files/%lx-%lx", pid, m->start, m->end);
    int fd = open_regular(path, 0);
    if (fd >= 0 || m->deleted)
        return fd;
    snprintf(path, sizeof path, "/proc/%d/root%s", pid, m->path);
    return open_regular(path, m->inode);
}

static int open_given(struct pywalk_mem mem, const struct proc_map *m) {
    unsigned char want[PYWALK_BUILD_ID], have[PYWALK_BUILD_ID];
    struct core_module file = {.fd = plain_file_open(m->path)};
    size_t n = file.fd < 0 ? 0 : pywalk_build_id(mem, m->start, want);

    if (n != 0 && pywalk_build_id((struct pywalk_mem){core_read_module, &file}, 0, have) == n &&
        memcmp(want, have, n) == 0)
        return file.fd;
    if (file.fd >= 0)
        close(file.fd);
    return -1;
}

/* ---- callbacks of libdwfl ---- */

static pid_t next_thread(Dwfl *dwfl UNUSED, void *arg UNUSED, void **thread_arg UNUSED) {
    return 0; /* threads are requested one by one */
}

static bool get_thread(Dwfl *dwfl UNUSED, pid_t tid, void *arg, void **thread_arg) {
    struct native *n = arg;

    *thread_arg = n;
    return n->walk.regs && n->walk.tid == tid;
}

static bool read_word(Dwfl *dwfl UNUSED, Dwarf_Addr addr, Dwarf_Word *result, void *arg) {
    const struct pywalk_mem *mem = &((struct native *)arg)->walk.mem;

    return mem->read(mem->ctx, addr, result, sizeof *result) == 0;
}

static bool initial_registers(Dwfl_Thread *thread, void *arg) {
    const struct walk *w = &((struct native *)arg)->walk;
    const struct user_regs_struct *r = w->regs;
    /* in DWARF's order */
    Dwarf_Word v[17] = {r->rax, r->rdx, r->rcx, r->rbx, r->rsi, r->rdi, r->rbp, r->rsp, r->r8,
                        r->r9,  r->r10, r->r11, r->r12, r->r13, r->r14, r->r15, r->rip};

    if (w->all)
        return dwfl_thread_state_registers(thread, 0, 17, v);
    /* 7 is the stack pointer, 16 the pc. A frame that needs another register ends the walk. */
    return dwfl_thread_state_registers(thread, 7, 1, &v[7]) &&
           dwfl_thread_state_registers(thread, 16, 1, &v[16]);
}

/* Returns a descriptor; or -1, with *elf set if the file could be read from memory. */
static int find_elf(Dwfl_Module *mod UNUSED, void **userdata, const char *name UNUSED,
                    Dwarf_Addr base, char **file_name, Elf **elf) {
    struct native *n = *userdata;
    const struct proc_map *m = proc_maps_at(n->s.maps, base);
    struct core_module *in_core;
    int fd = -1;

    if (!m)
        return -1;
    if (m->path[0] != '/')
        ;
    else if (!n->s.core)
        fd = n->s.pid ? open_live(n->s.pid, m) : open_given(n->s.mem, m);
    else if ((in_core = core_module(n->s.core, base))) {
        in_core->wanted = 1;
        if (in_core->fd >= 0)
            fd = fcntl(in_core->fd, F_DUPFD_CLOEXEC, 0);
    }
    if (fd < 0)
        *elf = from_memory(n, base);
    if (fd >= 0 || *elf)
        *file_name = strdup(m->path);
    return fd;
}

/* Finds debug files only by build-id, under /usr/lib/debug. */
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

static int set_userdata(Dwfl_Module *mod UNUSED, void **userdata, const char *name UNUSED,
                        Dwarf_Addr start UNUSED, void *arg) {
    *userdata = arg;
    return DWARF_CB_OK;
}

/* Consecutive mappings of one file are one module; a mapping of the file's beginning starts a new module. */
static int report(struct native *n) {
    const struct proc_maps *maps = n->s.maps;
    size_t i = 0;

    dwfl_report_begin(n->dwfl);
    while (i < maps->n) {
        const struct proc_map *m = &maps->v[i++];
        uint64_t end = m->end;

        if ((m->path[0] != '/' && strcmp(m->path, "[vdso]") != 0) || m->offset != 0)
            continue;
        /* Anonymous memory in between is the module's .bss, or a gap. */
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
    n->s = *source;
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
    if (!n)
        return;
    dwfl_end(n->dwfl);
    native_names_free(n->names);
    elf_end(n->machine);
    for (size_t i = 0; i < n->nimages; i++)
        free(n->images[i]);
    free(n->images);
    free(n);
}

static int each_frame(Dwfl_Frame *state, void *arg) {
    struct walk *w = arg;
    bool activation = false;
    Dwarf_Addr pc;

    if (w->n >= w->max || !dwfl_frame_pc(state, &pc, &activation))
        return DWARF_CB_ABORT;
    if (pc != 0)
        w->out[w->n++] = (struct native_frame){pc, activation ? pc : pc - 1};
    return DWARF_CB_OK;
}

/* libdw requires an ELF file to know the machine. Any file will do, and of a core none may be available, so make one. */
static int attach(struct native *n) {
    n->header = (Elf64_Ehdr){
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_DYN,
        .e_machine = EM_X86_64,
        .e_version = EV_CURRENT,
        .e_ehsize = sizeof n->header,
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_shentsize = sizeof(Elf64_Shdr)};
    if (!n->machine)
        n->machine = elf_memory((char *)&n->header, sizeof n->header);
    return n->machine && dwfl_attach_state(n->dwfl, n->machine, 1, &thread_callbacks, n);
}

int native_walk(struct native *n, struct pywalk_mem mem, pid_t tid,
                const struct user_regs_struct *regs, int all, struct native_frame *out, size_t max,
                int *complete) {
    struct walk *w = &n->walk;
    int rc = -1;

    *w = (struct walk){mem, tid, regs, all, out, max, 0};
    if (!n->attached)
        n->attached = attach(n);
    if (n->attached)
        rc = dwfl_getthread_frames(n->dwfl, tid, each_frame, w);
    /* If an unknown register was needed, libdw believes that it has reached the first frame. */
    *complete = rc == 0 && all;
    if (w->n == 0 && max > 0)
        out[w->n++] = (struct native_frame){regs->rip, regs->rip};
    w->regs = NULL;
    return (int)w->n;
}

void native_name(struct native *n, uint64_t probe, struct native_name *out) {
    native_names_at(n->names, probe, out);
}

size_t native_functions(struct native *n, uint64_t probe, const struct inlined_frame **out) {
    return native_names_functions(n->names, probe, out);
}
