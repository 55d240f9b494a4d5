/* intern: equal strings become equal pointers, alive as long as their arena. */
#ifndef BASE_INTERN_H
#define BASE_INTERN_H

#include "base/arena.h"

typedef const char *Sym; /* compare with == */

typedef struct Interner {
    Arena *arena;
    Sym *slots;
    uint32_t n, cap;
} Interner;

void interner_init(Interner *interner, Arena *arena);
Sym intern_n(Interner *interner, const char *text, size_t length);
Sym intern(Interner *interner, const char *text);
Sym intern_printf(Interner *interner, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
