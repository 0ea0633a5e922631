/* Numbers with bits behind the point to outputs that are rounded once, halves to even, in single precision. Halves are
 * already added; close to a step of the outputs a list tells for which inputs single precision rounds the other way. */
#ifndef DIAGMEM_STEPS_H
#define DIAGMEM_STEPS_H

#include "../_compiler.h"
#include "_fixed_point.h"

typedef struct {
    int32_t shift; /* bits behind the point */
    int32_t low;   /* the range that the activation leaves */
    int32_t high;
    int32_t near;   /* how far from a step such inputs are at most */
    uint32_t width; /* of the numbers about a step; 0: there are none */
    int32_t count;
    const uint16_t *pairs; /* 256 times one input and the other, both less -128, in order */
} diagmem_steps;

/* An output close to a step. `pair`: its inputs, as they are listed. */
static DIAGMEM_NOINLINE int32_t diagmem_beside_step(const diagmem_steps *to, int32_t x, int32_t pair) {
    const int32_t part = x & ((1 << to->shift) - 1);
    const int32_t whole = x >> to->shift;
    const int32_t given = part == 0 ? whole - (whole & 1) : whole;
    int32_t from = 0;
    for (int32_t end = to->count; from < end;) {
        const int32_t middle = (from + end) / 2;
        if (to->pairs[middle] < pair) {
            from = middle + 1;
        } else {
            end = middle;
        }
    }
    if (from == to->count || to->pairs[from] != pair) {
        return given;
    }
    return part >> (to->shift - 1) ? whole + 1 : 2 * whole - 1 - given;
}

static inline int8_t diagmem_on_steps(const diagmem_steps *to, int32_t x, int32_t first, int32_t second) {
    int32_t value = x >> to->shift;
    if ((((uint32_t)x + (uint32_t)to->near) & ((1u << to->shift) - 1u)) < to->width) {
        value = diagmem_beside_step(to, x, (first + 128) * 256 + second + 128);
    }
    return (int8_t)diagmem_clamp(value, to->low, to->high);
}

#endif
