/* SOFTMAX on 8-bit integers, signed or not. For each row: its elements are read twice, then each is read and written in
 * turn. */
#ifndef DIAGMEM_SOFTMAX_8_H
#define DIAGMEM_SOFTMAX_8_H

#include "../numerics/_fixed_exp.h"

typedef struct {
    int32_t rows;
    int32_t size;
    int32_t mantissa; /* differences to numbers with 26 fractional bits */
    int32_t shift;
    int32_t least_difference; /* below it an exponential is taken as 0 */
} diagmem_softmax_8_params;

#define DIAGMEM_SUM_INTEGER_BITS 12

/* exp((x - largest) * beta), 31 fractional bits. */
static inline int32_t diagmem_softmax_8_exp(const diagmem_softmax_8_params *p, int32_t difference) {
    const int32_t shifted = diagmem_wrapping_shift(difference, p->shift);
    return diagmem_exp_of_negative(diagmem_high_mul(shifted, p->mantissa));
}

/* Defines the kernel `name` for a type whose smallest number is `least`. */
#define DIAGMEM_SOFTMAX_8(name, type, least)                                                                          \
    typedef diagmem_softmax_8_params name##_params;                                                                   \
                                                                                                                      \
    static inline void name(const name##_params *p, const type *in, type *out) {                                      \
        for (int32_t row = 0; row < p->rows; ++row, in += p->size, out += p->size) {                                  \
            int32_t largest = least;                                                                                  \
            for (int32_t c = 0; c < p->size; ++c) {                                                                   \
                largest = in[c] > largest ? in[c] : largest;                                                          \
            }                                                                                                         \
            int32_t sum = 0;                                                                                          \
            for (int32_t c = 0; c < p->size; ++c) {                                                                   \
                const int32_t difference = in[c] - largest;                                                           \
                if (difference >= p->least_difference) {                                                              \
                    sum += diagmem_rounding_shift(diagmem_softmax_8_exp(p, difference), DIAGMEM_SUM_INTEGER_BITS);    \
                }                                                                                                     \
            }                                                                                                         \
            const int32_t zeros = diagmem_leading_zeros((uint32_t)sum);                                               \
            const int32_t scale = diagmem_one_over_one_plus((int32_t)(((uint32_t)sum << zeros) - 0x80000000u));       \
            const int32_t exponent = DIAGMEM_SUM_INTEGER_BITS - zeros + 31 - 8;                                       \
            for (int32_t c = 0; c < p->size; ++c) {                                                                   \
                const int32_t difference = in[c] - largest;                                                           \
                int32_t value = least;                                                                                \
                if (difference >= p->least_difference) {                                                              \
                    const int32_t share = diagmem_high_mul(scale, diagmem_softmax_8_exp(p, difference));              \
                    value += diagmem_rounding_shift(share, exponent);                                                 \
                }                                                                                                     \
                out[c] = (type)diagmem_clamp(value, least, least + 255);                                              \
            }                                                                                                         \
        }                                                                                                             \
    }

#endif
