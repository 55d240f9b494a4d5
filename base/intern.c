#include "base/intern.h"

#include <stdio.h>
#include <string.h>

#include "base/map.h"

void interner_init(Interner *interner, Arena *arena)
{
    *interner = (Interner){.arena = arena};
}

static void grow(Interner *interner)
{
    Sym *old = interner->slots;
    uint32_t old_cap = interner->cap;
    interner->cap = old_cap ? old_cap * 2 : 256;
    interner->slots = ARENA_ARRAY(interner->arena, Sym, interner->cap);
    for (uint32_t i = 0; i < old_cap; i++) {
        if (!old[i])
            continue;
        uint32_t slot = (uint32_t)map_hash(old[i], strlen(old[i]), 0) & (interner->cap - 1);
        while (interner->slots[slot])
            slot = (slot + 1) & (interner->cap - 1);
        interner->slots[slot] = old[i];
    }
}

Sym intern_n(Interner *interner, const char *text, size_t length)
{
    if (interner->n * 2 >= interner->cap)
        grow(interner);
    uint32_t slot = (uint32_t)map_hash(text, length, 0) & (interner->cap - 1);
    for (; interner->slots[slot]; slot = (slot + 1) & (interner->cap - 1)) {
        Sym seen = interner->slots[slot];
        if (!strncmp(seen, text, length) && !seen[length])
            return seen;
    }
    interner->n++;
    return interner->slots[slot] = arena_strndup(interner->arena, text, length);
}

Sym intern(Interner *interner, const char *text)
{
    return intern_n(interner, text, strlen(text));
}

Sym intern_printf(Interner *interner, const char *format, ...)
{
    char small[256];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if ((size_t)length < sizeof small)
        return intern_n(interner, small, (size_t)length);
    va_start(args, format);
    char *text = arena_vprintf(interner->arena, format, args);
    va_end(args);
    return intern_n(interner, text, (size_t)length);
}
