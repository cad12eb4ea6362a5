/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shared object, loaded by ctypes, with code that unwinders get wrong: machine code without call frame information that keeps garbage in
 * rbp, the same code on a small stack of its own, and the same code in memory that no file backs.
 */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* There are no .cfi_ directives, so the assembler makes no FDE for these functions. */
__asm__(".text\n"
        ".globl spin_without_cfi\n"
        ".type spin_without_cfi, @function\n"
        "spin_without_cfi:\n"
        "  push %rbp\n"
        "  push %rbx\n"
        "  mov $0xdeadbeefdead0001, %rbp\n"
        "  mov %rbp, %rbx\n"
        "1: dec %rdi\n"
        "  jg 1b\n"
        "  pop %rbx\n"
        "  pop %rbp\n"
        "  ret\n"
        ".size spin_without_cfi, . - spin_without_cfi\n"

        /* The same with the stack pointer in the middle of the memory at rsi. */
        ".globl spin_on_stack\n"
        ".type spin_on_stack, @function\n"
        "spin_on_stack:\n"
        "  push %rbp\n"
        "  mov %rsp, %rax\n"
        "  mov %rsi, %rsp\n"
        "  push %rax\n"
        "  mov $8, %ebp\n"
        "1: dec %rdi\n"
        "  jg 1b\n"
        "  pop %rsp\n"
        "  pop %rbp\n"
        "  ret\n"
        ".size spin_on_stack, . - spin_on_stack\n");

void spin_without_cfi(long n);
void spin_on_stack(long n, void *stack);

void spin_on_small_stack(long n) {
    /* As small as a stack can be to hold a signal and its handler on any CPU: 16 KiB and the kernel's frame. */
    static __thread char stack[32 << 10] __attribute__((aligned(64)));
    spin_on_stack(n, stack + sizeof stack);
}

void spin_in_generated_code(long n) {
    static const uint8_t code[] = {
        0x55,                               /* push %rbp */
        0x48, 0xc7, 0xc5, 0xf0, 0xff, 0, 0, /* mov $0xfff0, %rbp */
        0x48, 0xff, 0xcf,                   /* dec %rdi */
        0x7f, 0xfb,                         /* jg -5 */
        0x5d,                               /* pop %rbp */
        0xc3,                               /* ret */
    };
    void *p =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return;
    memcpy(p, code, sizeof code);
    ((void (*)(long))p)(n);
    munmap(p, 4096);
}
