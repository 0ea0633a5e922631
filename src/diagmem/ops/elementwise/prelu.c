/* PRELU: elements below zero are multiplied by their slope. For each output element: its inputs are read, then it is
 * written. */
#include "../numerics/_fixed_point.h"
#include "_pairwise.h"

typedef struct {
    diagmem_broadcast shape;
    int32_t zero_point;
    int32_t slope_zero_point;
    diagmem_requantisation above;
    diagmem_requantisation below; /* of products with the slope */
} diagmem_prelu_params;

static inline int32_t diagmem_prelu(const diagmem_prelu_params *p, int32_t x, int32_t slope) {
    const int32_t value = x - p->zero_point;
    return value >= 0 ? diagmem_requantise(&p->above, value)
                      : diagmem_requantise(&p->below, value * (slope - p->slope_zero_point));
}

DIAGMEM_PAIRWISE(diagmem_prelu_s8, diagmem_prelu_params, int8_t, int8_t, diagmem_prelu(p, x, y))
DIAGMEM_PAIRWISE(diagmem_prelu_u8, diagmem_prelu_params, uint8_t, uint8_t, diagmem_prelu(p, x, y))
DIAGMEM_PAIRWISE(diagmem_prelu_s16, diagmem_prelu_params, int16_t, int8_t, diagmem_prelu(p, x, y))

typedef struct {
    diagmem_broadcast shape;
} diagmem_prelu_f32_params;

DIAGMEM_PAIRWISE(diagmem_prelu_f32, diagmem_prelu_f32_params, float, float, x >= 0.0f ? x : x * y)
