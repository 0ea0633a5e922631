/* ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, SQUARED_DIFFERENCE on single precision. */
#include "_pairwise.h"
#include "../numerics/_real.h"

typedef struct {
    diagmem_broadcast shape;
    float low; /* the range that the activation leaves */
    float high;
} diagmem_binary_f32_params;

#define DIAGMEM_BINARY_F32(name, expression) \
    DIAGMEM_PAIRWISE(name, diagmem_binary_f32_params, float, float, diagmem_clamp_f32(expression, p->low, p->high))

DIAGMEM_BINARY_F32(diagmem_add_f32, x + y)
DIAGMEM_BINARY_F32(diagmem_sub_f32, x - y)
DIAGMEM_BINARY_F32(diagmem_mul_f32, x * y)
DIAGMEM_BINARY_F32(diagmem_div_f32, x / y)
DIAGMEM_BINARY_F32(diagmem_maximum_f32, x > y ? x : y)
DIAGMEM_BINARY_F32(diagmem_minimum_f32, x < y ? x : y)
DIAGMEM_BINARY_F32(diagmem_squared_difference_f32, (x - y) * (x - y))
