/* BATCH_MATMUL. For each output element: a row of the left matrix and a column of the right one are read, then it is
 * written. */
#include "../loops/_broadcast.h"
#include "../numerics/_channels_s16.h"

typedef struct {
    diagmem_broadcast shape; /* the output's axes, and where its rows and columns start in either matrix */
    int32_t depth;           /* elements of a row or a column */
    int32_t left_step;       /* elements between neighbours of a row of the left matrix */
    int32_t right_step;      /* elements between neighbours of a column of the right matrix */
    int32_t left_zero_point;
    int32_t right_zero_point;
    diagmem_requantisation output; /* its mantissa has 15 bits for 16-bit numbers */
} diagmem_batch_matmul_params;

#define DIAGMEM_BATCH_MATMUL(name, type, sum_type, term, result)                                                      \
    static inline sum_type name##_sum(const diagmem_batch_matmul_params *p, const type *left, const type *right) {   \
        sum_type sum = 0;                                                                                            \
        for (int32_t k = 0; k < p->depth; ++k, left += p->left_step, right += p->right_step) {                       \
            const type x = *left;                                                                                    \
            const type y = *right;                                                                                   \
            sum += term;                                                                                             \
        }                                                                                                            \
        return sum;                                                                                                  \
    }                                                                                                                \
    static inline void name##_row(const diagmem_batch_matmul_params *p, const type *left, const type *right,         \
                                  type *out) {                                                                       \
        const int32_t last = DIAGMEM_AXES - 1;                                                                       \
        for (int32_t i = 0; i < p->shape.size[last]; ++i, out += p->shape.out[last]) {                               \
            const sum_type sum =                                                                                     \
                name##_sum(p, left + i * p->shape.first[last], right + i * p->shape.second[last]);                   \
            *out = (type)(result);                                                                                   \
        }                                                                                                            \
    }                                                                                                                \
    static inline void name(const diagmem_batch_matmul_params *p, const type *left, const type *right, type *out) {  \
        diagmem_place at = {{0}, 0, 0, 0};                                                                           \
        do {                                                                                                         \
            name##_row(p, left + at.first, right + at.second, out + at.out);                                         \
        } while (diagmem_next_row(&p->shape, &at));                                                                  \
    }

DIAGMEM_BATCH_MATMUL(diagmem_batch_matmul_s8, int8_t, int32_t, (x - p->left_zero_point) * (y - p->right_zero_point),
                     diagmem_requantise(&p->output, sum))
DIAGMEM_BATCH_MATMUL(diagmem_batch_matmul_s16, int16_t, int64_t, (int64_t)x * y,
                     diagmem_clamp(diagmem_rescale_wide(sum, p->output.mantissa, p->output.shift), p->output.low,
                                   p->output.high))
DIAGMEM_BATCH_MATMUL(diagmem_batch_matmul_f32, float, float, x * y, sum)

/* What does not fit wraps around. */
DIAGMEM_BATCH_MATMUL(diagmem_batch_matmul_s32, int32_t, uint32_t, (uint32_t)x * (uint32_t)y, sum)
DIAGMEM_BATCH_MATMUL(diagmem_batch_matmul_s64, int64_t, uint64_t, (uint64_t)x * (uint64_t)y, sum)
