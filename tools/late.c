/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late.c - loads libraries that few commands need when the first of their functions is called. Together with the libraries that they need
 * (nine in all) they would take half of the time that a program needs to start, and most questions to a process take little longer than that.
 *
 * Each function is defined here under its own name, so that callers need no change: it jumps to where its `struct late` points, which first is
 * code that finds the function (`late_first`) and then the function itself. This is the dynamic linker's lazy binding, for the library as well.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "common.h"

struct late {
    void (*to)(void); /* must be the first member: the assembler below jumps through it */
    const char *name;
    const char *const *files; /* of the library: the first that can be loaded is taken */
};

static const char *const dw[] = {"libdw.so.1", NULL}, *const elf[] = {"libelf.so.1", NULL},
                         *const edit[] = {"libedit.so.2", "libedit.so.0", NULL},
                         *const pcre2[] = {"libpcre2-8.so.0", NULL};

/* Any thread may call this; two may find the same function. Without the library the program ends, as the caller cannot go on. */
__attribute__((used, visibility("hidden"))) void *late_find(struct late *l) {
    void *lib = NULL, *found = NULL;

    for (const char *const *file = l->files; *file && !lib; file++)
        lib = dlopen(*file, RTLD_NOW | RTLD_LOCAL);
    if (lib)
        found = dlsym(lib, l->name);
    if (!found)
        exit(tool_fail("cannot load %s: %s", l->files[0], dlerror()));
    __atomic_store(&l->to, (void (**)(void)) & found, __ATOMIC_RELAXED);
    return found;
}

/* %r11 holds the struct late. All registers with arguments are saved, also %rax: a variadic call has the number of vector registers in %al. */
__asm__(".pushsection .text\n"
        ".type late_first, @function\n"
        "late_first:\n"
        "  push %rdi\n  push %rsi\n  push %rdx\n  push %rcx\n  push %r8\n  push %r9\n  push %rax\n"
        "  mov %r11, %rdi\n"
        "  call late_find\n"
        "  mov %rax, %r11\n"
        "  pop %rax\n  pop %r9\n  pop %r8\n  pop %rcx\n  pop %rdx\n  pop %rsi\n  pop %rdi\n"
        "  jmp *%r11\n"
        ".size late_first, . - late_first\n"
        ".popsection\n");

#define LATE(lib, f)                                                                               \
    extern void first_##f(void);                                                                   \
    __attribute__((used)) struct late late_##f = {first_##f, #f, lib};                             \
    __asm__(".pushsection .text\n"                                                                 \
            ".globl " #f "\n"                                                                      \
            ".hidden " #f "\n"                                                                     \
            ".type " #f ", @function\n" #f ":\n"                                                   \
            "  jmp *late_" #f "(%rip)\n"                                                           \
            "first_" #f ":\n"                                                                      \
            "  lea late_" #f "(%rip), %r11\n"                                                      \
            "  jmp late_first\n"                                                                   \
            ".size " #f ", . - " #f "\n"                                                           \
            ".popsection\n")

LATE(dw, dwarf_attr);
LATE(dw, dwarf_attr_integrate);
LATE(dw, dwarf_child);
LATE(dw, dwarf_diecu);
LATE(dw, dwarf_diename);
LATE(dw, dwarf_filesrc);
LATE(dw, dwarf_formstring);
LATE(dw, dwarf_formudata);
LATE(dw, dwarf_getsrc_die);
LATE(dw, dwarf_getsrcfiles);
LATE(dw, dwarf_haspc);
LATE(dw, dwarf_lineno);
LATE(dw, dwarf_linesrc);
LATE(dw, dwarf_ranges);
LATE(dw, dwarf_siblingof);
LATE(dw, dwarf_tag);
LATE(dw, dwelf_elf_gnu_build_id);
LATE(dw, dwfl_addrmodule);
LATE(dw, dwfl_attach_state);
LATE(dw, dwfl_begin);
LATE(dw, dwfl_build_id_find_debuginfo);
LATE(dw, dwfl_build_id_find_elf);
LATE(dw, dwfl_end);
LATE(dw, dwfl_frame_pc);
LATE(dw, dwfl_getmodules);
LATE(dw, dwfl_getthread_frames);
LATE(dw, dwfl_module_addrdie);
LATE(dw, dwfl_module_addrinfo);
LATE(dw, dwfl_module_getdwarf);
LATE(dw, dwfl_module_getelf);
LATE(dw, dwfl_module_getsym_info);
LATE(dw, dwfl_module_getsymtab);
LATE(dw, dwfl_module_info);
LATE(dw, dwfl_module_nextcu);
LATE(dw, dwfl_report_begin);
LATE(dw, dwfl_report_elf);
LATE(dw, dwfl_report_end);
LATE(dw, dwfl_report_module);
LATE(dw, dwfl_standard_find_debuginfo);
LATE(dw, dwfl_thread_state_registers);
LATE(elf, elf_begin);
LATE(elf, elf_end);
LATE(elf, elf_getphdrnum);
LATE(elf, elf_kind);
LATE(elf, elf_memory);
LATE(elf, elf_rawfile);
LATE(elf, elf_version);
LATE(elf, gelf_getphdr);
LATE(edit, el_end);
LATE(edit, el_get);
LATE(edit, el_gets);
LATE(edit, el_init);
LATE(edit, el_insertstr);
LATE(edit, el_line);
LATE(edit, el_reset);
LATE(edit, el_set);
LATE(edit, el_source);
LATE(edit, history);
LATE(edit, history_end);
LATE(edit, history_init);
LATE(pcre2, pcre2_compile_8);
LATE(pcre2, pcre2_code_free_8);
LATE(pcre2, pcre2_get_error_message_8);
LATE(pcre2, pcre2_get_ovector_pointer_8);
LATE(pcre2, pcre2_match_8);
LATE(pcre2, pcre2_match_context_create_8);
LATE(pcre2, pcre2_match_context_free_8);
LATE(pcre2, pcre2_match_data_create_8);
LATE(pcre2, pcre2_match_data_free_8);
LATE(pcre2, pcre2_pattern_info_8);
LATE(pcre2, pcre2_set_match_limit_8);
