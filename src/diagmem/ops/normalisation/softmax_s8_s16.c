/* SOFTMAX from 8-bit to 16-bit integers. For each row: its elements are read twice, then each is read and written in
 * turn. */
#include "_softmax_8.h"

typedef diagmem_softmax_8_params diagmem_softmax_s8_s16_params;

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
                sum += diagmem_rounding_shift(diagmem_softmax_8_exp(p, difference), DIAGMEM_SUM_INTEGER_BITS);
            }
        }
        const int32_t zeros = diagmem_leading_zeros((uint32_t)sum);
        const int32_t scale = diagmem_one_over_one_plus((int32_t)(((uint32_t)sum << zeros) - 0x80000000u));
        const int32_t exponent = DIAGMEM_SUM_INTEGER_BITS - zeros + 31 - 16;
        for (int32_t c = 0; c < p->size; ++c) {
            const int32_t difference = in[c] - largest;
            int32_t value = INT16_MIN;
            if (difference >= p->least_difference) {
                value +=
                    diagmem_rounding_shift(diagmem_high_mul(scale, diagmem_softmax_8_exp(p, difference)), exponent);
            }
            out[c] = (int16_t)diagmem_clamp(value, INT16_MIN, INT16_MAX);
        }
    }
}
