/* count_allocations: preloaded into a step executable, counts what takes memory from the system
 * or the heap, and writes the count to the file that COUNT_ALLOCATIONS names when the process
 * ends. Two runs of different lengths that count the same allocate nothing in the steps between.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>

/* this file is loaded into a program under test: the one place for a global */
static atomic_long count;

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
void *malloc(size_t bytes);
void *calloc(size_t n, size_t bytes);
void *realloc(void *old, size_t bytes);

void *malloc(size_t bytes)
{
    count++;
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    count++;
    return __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
    count++;
    return __libc_realloc(old, bytes);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    typedef void *(*Mmap)(void *, size_t, int, int, int, off_t);
    union {
        void *symbol;
        Mmap function;
    } next = {dlsym(RTLD_NEXT, "mmap")};
    count++;
    return next.function(at, bytes, protection, flags, file, offset);
}

__attribute__((destructor)) static void write_count(void)
{
    const char *path = getenv("COUNT_ALLOCATIONS");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    fprintf(file, "%ld\n", atomic_load(&count));
    fclose(file);
}
