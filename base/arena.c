#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* Under AddressSanitizer each allocation is a block of its own and ends at its last byte. */
#ifdef __has_feature
#define ARENA_WATCHED __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define ARENA_WATCHED 1
#else
#define ARENA_WATCHED 0
#endif

enum { ARENA_BLOCK = ARENA_WATCHED ? 0 : 1 << 20, ARENA_ALIGN = ARENA_WATCHED ? 1 : 16 };

typedef struct ArenaBlock {
    struct ArenaBlock *next;
    size_t used, size;
    _Alignas(16) unsigned char data[];
} ArenaBlock;

struct Arena {
    ArenaBlock *head;
    size_t bytes;
};

static void *must(void *memory)
{
    if (!memory) {
        fprintf(stderr, "error: out of memory\n");
        exit(STATUS_ENV);
    }
    return memory;
}

Arena *arena_new(void)
{
    return must(calloc(1, sizeof(Arena)));
}

void arena_free(Arena *arena)
{
    if (!arena)
        return;
    for (ArenaBlock *block = arena->head, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(arena);
}

void *arena_alloc(Arena *arena, size_t bytes)
{
    if (bytes > PTRDIFF_MAX)
        must(NULL);
    bytes = (bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    ArenaBlock *block = arena->head;
    if (!block || block->size - block->used < bytes) {
        size_t size = bytes > ARENA_BLOCK / 4 ? bytes : ARENA_BLOCK;
        ArenaBlock *fresh = must(calloc(1, sizeof(ArenaBlock) + size));
        fresh->size = size;
        if (block && size == bytes) { /* an oversized block goes behind the open one */
            fresh->next = block->next;
            block->next = fresh;
        } else {
            fresh->next = block;
            arena->head = fresh;
        }
        block = fresh;
    }
    void *memory = block->data + block->used;
    block->used += bytes;
    arena->bytes += bytes;
    return memory;
}

void *arena_array(Arena *arena, size_t size, size_t n)
{
    size_t bytes;
    return arena_alloc(arena, __builtin_mul_overflow(size, n, &bytes) ? SIZE_MAX : bytes);
}

char *arena_strndup(Arena *arena, const char *text, size_t length)
{
    char *copy = arena_alloc(arena, length + 1);
    memcpy(copy, text, length);
    return copy;
}

char *arena_vprintf(Arena *arena, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *text = arena_alloc(arena, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

char *arena_printf(Arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = arena_vprintf(arena, format, args);
    va_end(args);
    return text;
}

size_t arena_bytes(const Arena *arena)
{
    return arena->bytes;
}
