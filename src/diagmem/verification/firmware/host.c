/* The harness on the machine at hand. The address sanitizer watches both ends of each arena, which is on the heap. */
#define _POSIX_C_SOURCE 200112L

#include <stdio.h>
#include <stdlib.h>

#include "harness.h"
#include "model.h"

void *harness_arena(int pool, size_t bytes) {
    (void)pool;
    const size_t least = sizeof(void *);
    void *arena;
    if (posix_memalign(&arena, MODEL_ARENA_ALIGN < least ? least : MODEL_ARENA_ALIGN, bytes) != 0) {
        exit(1);
    }
    return arena;
}

int harness_read(void *to, size_t bytes) { return fread(to, 1, bytes, stdin) == bytes; }

void harness_write(const void *from, size_t bytes) {
    if (fwrite(from, 1, bytes, stdout) != bytes) {
        exit(1);
    }
}

void harness_paint_stack(void) {}
void harness_measure_stack(void) {}
