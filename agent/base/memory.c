/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/base/memory.h"

#include <sys/stat.h>

#include "agent/pywalk/mem.h"
#include "writer/sys.h"

/* /proc/thread-self/mem, only where process_vm_readv() is refused. The program may close it, and get its number for a file of its own. */
static int mem_fd = -1;  /* (a) */
static struct stat file; /* which file it is; another one than the parent's, in a child */
static uint32_t mem_pid; /* getpid() without the system call */

int memory_init(void) {
    static const uint64_t probe = 0x70726f62696e67;
    uint64_t v = 0;
    struct stat st;
    int fd = mem_fd, is_new = mem_pid != (uint32_t)getpid();
    mem_pid = (uint32_t)getpid();
    if (!(is_new && fd >= 0) && !memory_read_self((uint64_t)(uintptr_t)&probe, &v, sizeof v))
        return 0;
    __atomic_store_n(&mem_fd, -1, __ATOMIC_RELAXED);
    if (fd >= 0 && !fstat(fd, &st) && st.st_ino == file.st_ino && st.st_dev == file.st_dev)
        close(fd);
    if (!memory_read_self((uint64_t)(uintptr_t)&probe, &v, sizeof v))
        return 0;
    fd = sys_high_fd(open("/proc/thread-self/mem", O_RDONLY | O_CLOEXEC));
    if (fd >= 0 && !fstat(fd, &file))
        __atomic_store_n(&mem_fd, fd, __ATOMIC_RELAXED);
    return memory_read_self((uint64_t)(uintptr_t)&probe, &v, sizeof v) ? -ENOTSUP : 0;
}

int memory_uses_file(void) {
    return mem_fd >= 0;
}

int memory_read_self(uint64_t addr, void *buf, size_t n) {
    if (mem_fd < 0)
        return pywalk_read_process((void *)(uintptr_t)mem_pid, addr, buf, n);
    return pread(mem_fd, buf, n, (off_t)addr) == (ssize_t)n ? 0 : -EFAULT;
}

void memory_read_again(struct pywalk_pages *p) {
    struct iovec to[64], from[64];
    unsigned n = 0;
    for (struct pywalk_page *page = p->page; page < p->page + p->n && n < 64 && mem_fd < 0; page++)
        if (page->used) {
            to[n] = (struct iovec){page->bytes, PYWALK_PAGE};
            from[n++] = (struct iovec){(void *)((page->number - 1) * PYWALK_PAGE), PYWALK_PAGE};
        }
    /* process_vm_readv() stops at the first page that it cannot read. */
    ssize_t got = n ? process_vm_readv(gettid(), to, n, from, n, 0) : 0;
    for (struct pywalk_page *page = p->page; page < p->page + p->n; page++) {
        if (!page->used || (got -= PYWALK_PAGE) < 0)
            page->number = 0;
        page->used = 0;
    }
}

void guard_forget(struct guard *g) {
    memset(g->page, 0, sizeof g->page);
}

static int guard_page(struct guard *g, uint64_t page) {
    /* The page number is hashed, because stacks lie at round distances from each other; each page has two possible slots. */
    uint64_t *place = &g->page[(page * 0x9e3779b97f4a7c15u) >> 55 & (GUARD_PAGES - 2)];
    if (place[0] == page + 1 || place[1] == page + 1)
        return 0;
    if (!pywalk_mem_probe(page * MEMORY_PAGE))
        return -EFAULT;
    place[1] = place[0];
    place[0] = page + 1;
    return 0;
}

/* Used instead of memcpy(), which a sanitizer would check: the bytes may belong to anything in the program. */
__attribute__((no_sanitize("address"))) static void copy(void *to, uint64_t from, size_t n) {
    uint8_t *out = to;
    for (; n >= 8 && from % 8 == 0; n -= 8, from += 8, out += 8) {
        uint64_t v = *(const volatile uint64_t *)(uintptr_t)from;
        memcpy(out, &v, 8);
    }
    for (size_t i = 0; i < n; i++)
        out[i] = ((const volatile uint8_t *)(uintptr_t)from)[i];
}

int guard_read(void *ctx, uint64_t addr, void *buf, size_t n) {
    struct guard *g = ctx;
    uint64_t last = addr + n - 1;
    if (n == 0)
        return 0;
    if (last < addr)
        return -EFAULT;
    for (uint64_t page = addr / MEMORY_PAGE; page <= last / MEMORY_PAGE; page++)
        if (guard_page(g, page))
            return -EFAULT;
    copy(buf, addr, n);
    return 0;
}
