/* CUMSUM: sums along an axis. Fibre by fibre, in the order of their first elements; along a fibre each element is read,
 * then written. */
#include "../numerics/_fixed_point.h"

typedef struct {
    int32_t outer; /* axes before that which is summed */
    int32_t size;
    int32_t inner; /* axes behind it */
    int32_t is_exclusive;
    int32_t is_reverse;
} diagmem_cumsum_params;

typedef struct {
    int32_t outer;
    int32_t size;
    int32_t inner;
    int32_t is_exclusive;
    int32_t is_reverse;
    int32_t zero_point;
    diagmem_requantisation output; /* of sums with 19 bits behind the point */
} diagmem_cumsum_s8_params;

/* Defines the kernel `name`. `term` is what an element `x` adds to `total`, which is at first `start`; `result` makes
 * an output from `sum`. */
#define DIAGMEM_CUMSUM(name, params, type, total_type, start, term, result)                             \
    static inline void name##_fibre(const params *p, const type *in, type *out) {                       \
        const int32_t step = p->is_reverse ? -p->inner : p->inner;                                      \
        int32_t at = p->is_reverse ? (p->size - 1) * p->inner : 0;                                      \
        total_type total = start;                                                                       \
        for (int32_t i = 0; i < p->size; ++i, at += step) {                                             \
            const type x = in[at];                                                                      \
            const total_type after = total + (term);                                                    \
            const total_type sum = p->is_exclusive ? total : after;                                     \
            out[at] = (type)(result);                                                                   \
            total = after;                                                                              \
        }                                                                                               \
    }                                                                                                   \
    static inline void name(const params *p, const type *in, type *out) {                               \
        for (int32_t i = 0; i < p->outer; ++i, in += p->size * p->inner, out += p->size * p->inner) {   \
            for (int32_t j = 0; j < p->inner; ++j) {                                                    \
                name##_fibre(p, in + j, out + j);                                                       \
            }                                                                                           \
        }                                                                                               \
    }

/* What does not fit wraps around. TFLite Micro starts from a stored 0, which stands for minus the zero point. */
DIAGMEM_CUMSUM(diagmem_cumsum_s8, diagmem_cumsum_s8_params, int8_t, uint32_t, (uint32_t)-p->zero_point << 19,
               (uint32_t)(x - p->zero_point) << 19, diagmem_requantise(&p->output, (int32_t)sum))
DIAGMEM_CUMSUM(diagmem_cumsum_s32, diagmem_cumsum_params, int32_t, uint32_t, 0u, (uint32_t)x, (int32_t)sum)
DIAGMEM_CUMSUM(diagmem_cumsum_s64, diagmem_cumsum_params, int64_t, uint64_t, 0u, (uint64_t)x, (int64_t)sum)
DIAGMEM_CUMSUM(diagmem_cumsum_f32, diagmem_cumsum_params, float, float, 0.0f, x, sum)
