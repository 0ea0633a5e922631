/* Element-wise walks over an output and one or two inputs, each with strides of its own: a stride of 0 repeats. */
#ifndef DIAGMEM_BROADCAST_H
#define DIAGMEM_BROADCAST_H

#include <stdint.h>

#define DIAGMEM_AXES 4

/* The output's axes, the last one fastest, and for each the elements between neighbours: in the inputs, of which there
 * may be only a first one, and in the output. */
typedef struct {
    int32_t size[DIAGMEM_AXES];
    int32_t first[DIAGMEM_AXES];
    int32_t second[DIAGMEM_AXES];
    int32_t out[DIAGMEM_AXES];
} diagmem_broadcast;

/* A row of the output: an index for each axis, and where it and its inputs start. */
typedef struct {
    int32_t index[DIAGMEM_AXES - 1];
    int32_t first;
    int32_t second;
    int32_t out;
} diagmem_place;

/* Goes on to the next row. Returns 0 after the last one. */
static inline int diagmem_next_row(const diagmem_broadcast *b, diagmem_place *at) {
    for (int32_t axis = DIAGMEM_AXES - 2; axis >= 0; --axis) {
        at->first += b->first[axis];
        at->second += b->second[axis];
        at->out += b->out[axis];
        if (++at->index[axis] < b->size[axis]) {
            return 1;
        }
        at->first -= b->size[axis] * b->first[axis];
        at->second -= b->size[axis] * b->second[axis];
        at->out -= b->size[axis] * b->out[axis];
        at->index[axis] = 0;
    }
    return 0;
}

#endif
