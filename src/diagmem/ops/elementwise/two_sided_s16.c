/* LEAKY_RELU, ABS on 16-bit integers: what is below the zero point has a multiplier of its own. Each element is read,
 * then written. */
#include "_elementwise.h"
#include "../numerics/_fixed_point.h"

typedef struct {
    diagmem_broadcast shape;
    int32_t zero_point;
    int32_t sign; /* -1: what is below is turned to above first, 1: it is not */
    diagmem_requantisation above;
    diagmem_requantisation below;
} diagmem_two_sided_s16_params;

static inline int32_t diagmem_two_sided(const diagmem_two_sided_s16_params *p, int32_t value) {
    return value >= 0 ? diagmem_requantise(&p->above, value) : diagmem_requantise(&p->below, p->sign * value);
}

DIAGMEM_ELEMENTWISE(diagmem_two_sided_s16, diagmem_two_sided_s16_params, int16_t,
                    diagmem_two_sided(p, x - p->zero_point))
