/* ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM on plain integers of 64 bits. What does not fit wraps around. */
#include "../numerics/_wrapping_s64.h"
#include "_pairwise.h"

typedef struct {
    diagmem_broadcast shape;
    int32_t low; /* the range that the activation leaves; the ends of 32 bits stand for no limit */
    int32_t high;
} diagmem_plain_s64_params;

static inline int64_t diagmem_plain_s64(const diagmem_plain_s64_params *p, int64_t x) {
    return p->low != INT32_MIN && x < p->low ? p->low : p->high != INT32_MAX && x > p->high ? p->high : x;
}

/* Towards 0; a division by 0 gives 0. */
static inline int64_t diagmem_quotient_s64(int64_t x, int64_t y) {
    return y == 0 ? 0 : y == -1 ? diagmem_wrapping_sub_s64(0, x) : x / y;
}

#define DIAGMEM_PLAIN_S64(name, expression) \
    DIAGMEM_PAIRWISE(name, diagmem_plain_s64_params, int64_t, int64_t, expression)

DIAGMEM_PLAIN_S64(diagmem_add_s64, diagmem_plain_s64(p, diagmem_wrapping_add_s64(x, y)))
DIAGMEM_PLAIN_S64(diagmem_sub_s64, diagmem_plain_s64(p, diagmem_wrapping_sub_s64(x, y)))
DIAGMEM_PLAIN_S64(diagmem_mul_s64, diagmem_plain_s64(p, diagmem_wrapping_mul_s64(x, y)))
DIAGMEM_PLAIN_S64(diagmem_div_s64, diagmem_plain_s64(p, diagmem_quotient_s64(x, y)))
DIAGMEM_PLAIN_S64(diagmem_maximum_s64, x > y ? x : y)
DIAGMEM_PLAIN_S64(diagmem_minimum_s64, x < y ? x : y)
