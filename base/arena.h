/* arena: bump allocation with one lifetime; memory comes zeroed and 16-byte aligned. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Arena Arena;

Arena *arena_new(void);
void arena_free(Arena *arena);

/* Never returns NULL: a process without memory ends with STATUS_ENV and one message. */
void *arena_alloc(Arena *arena, size_t bytes);
void *arena_array(Arena *arena, size_t size, size_t n); /* more than memory can have is that too */
char *arena_strndup(Arena *arena, const char *text, size_t length);
char *arena_printf(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(Arena *arena, const char *format, va_list args);
size_t arena_bytes(const Arena *arena);

#define ARENA_NEW(arena, T) ((T *)arena_alloc((arena), sizeof(T)))
#define ARENA_ARRAY(arena, T, n) ((T *)arena_array((arena), sizeof(T), (size_t)(n)))

#endif
