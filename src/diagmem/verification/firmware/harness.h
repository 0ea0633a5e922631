/* What the harness needs of the place where it runs. */
#ifndef HARNESS_H
#define HARNESS_H

#include <stddef.h>
#include <stdint.h>

#define HARNESS_NOINLINE __attribute__((noinline))

/* What belongs to the harness, and is not counted as the model's. */
#define HARNESS_OUTSIDE __attribute__((section(".arena.bss")))

/* The arena in one of the memories: so many bytes and no more. */
void *harness_arena(int pool, size_t bytes);

/* The next bytes from the host; 0 where there are no more. */
int harness_read(void *to, size_t bytes);

void harness_write(const void *from, size_t bytes);

/* One run on all cores or, where the input comes row by row, one row of it: whether that is complete. `arena`: or the
 * list of them. */
int harness_together(void *arena, const void *row);

/* The stack of another core is painted before that starts; the bytes of it that were used in all runs. */
void harness_paint_other_stack(void);
uint32_t harness_other_stack(void);

void harness_paint_stack(void);
void harness_measure_stack(void);

#endif
