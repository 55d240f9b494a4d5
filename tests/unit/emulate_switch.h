/* emulate_switch: fibers of the emulators. A switch stores what a call keeps and goes on at another
 * stack: `swapcontext` without its two system calls. */
#ifndef TESTS_UNIT_EMULATE_SWITCH_H
#define TESTS_UNIT_EMULATE_SWITCH_H

#include <stddef.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif
void emulate_switch(void **save_sp, void *load_sp);
#ifdef __cplusplus
}
#endif

__asm__(".text\n.type emulate_switch,@function\nemulate_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

/* Where a fiber begins, which never returns: `end` is the end of its stack, aligned to 16. */
static inline void *emulate_begin(void *end, void (*start)(void))
{
    void **sp = (void **)end - 8;
    *--sp = NULL; /* the stack is aligned as after a call */
    memcpy(--sp, &start, sizeof start);
    for (int r = 0; r < 6; r++)
        *--sp = NULL;
    return sp;
}

#endif
