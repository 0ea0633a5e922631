/* SOFTMAX from 8-bit to 16-bit integers. For each row: its elements are read twice, then each is read and written in
 * turn. */
#include "../numerics/_fixed_exp.h"

typedef struct {
    int32_t rows;
    int32_t size;
    int32_t mantissa; /* differences to numbers with 26 fractional bits */
    int32_t shift;
    int32_t least_difference; /* below it an exponential is taken as 0 */
} diagmem_softmax_s8_s16_params;

#define DIAGMEM_SUM_BITS_S8_S16 12

/* exp((x - largest) * beta), 31 fractional bits. */
static inline int32_t diagmem_softmax_s8_s16_exp(const diagmem_softmax_s8_s16_params *p, int32_t difference) {
    const int32_t shifted = diagmem_wrapping_shift(difference, p->shift);
    return diagmem_exp_of_negative(diagmem_high_mul(shifted, p->mantissa));
}

static inline void diagmem_softmax_s8_s16(const diagmem_softmax_s8_s16_params *p, const int8_t *in, int16_t *out) {
    for (int32_t row = 0; row < p->rows; ++row, in += p->size, out += p->size) {
        int32_t largest = INT8_MIN;
        for (int32_t c = 0; c < p->size; ++c) {
            largest = in[c] > largest ? in[c] : largest;
        }
        int32_t sum = 0;
        for (int32_t c = 0; c < p->size; ++c) {
            const int32_t difference = in[c] - largest;
            if (difference >= p->least_difference) {
                sum += diagmem_rounding_shift(diagmem_softmax_s8_s16_exp(p, difference), DIAGMEM_SUM_BITS_S8_S16);
            }
        }
        const int32_t zeros = diagmem_leading_zeros((uint32_t)sum);
        const int32_t scale = diagmem_one_over_one_plus((int32_t)(((uint32_t)sum << zeros) - 0x80000000u));
        const int32_t exponent = DIAGMEM_SUM_BITS_S8_S16 - zeros + 31 - 16;
        for (int32_t c = 0; c < p->size; ++c) {
            const int32_t difference = in[c] - largest;
            int32_t value = INT16_MIN;
            if (difference >= p->least_difference) {
                value +=
                    diagmem_rounding_shift(diagmem_high_mul(scale, diagmem_softmax_s8_s16_exp(p, difference)), exponent);
            }
            out[c] = (int16_t)diagmem_clamp(value, INT16_MIN, INT16_MAX);
        }
    }
}
