/* LOG_SOFTMAX on 8-bit integers. For each row: its elements are read twice, then each is read and written in turn. */
#include "../numerics/_fixed_exp.h"

typedef struct {
    int32_t rows;
    int32_t size;
    int32_t mantissa; /* differences to numbers with 26 fractional bits */
    int32_t shift;
    int32_t least_difference; /* below it an exponential is taken as 0 */
    int32_t back_mantissa;    /* such numbers to differences */
    int32_t back_shift;
} diagmem_log_softmax_s8_params;

#define DIAGMEM_LOG_SUM_INTEGER_BITS 12

/* ln(x) with 26 fractional bits, for x >= 1 with 12 bits before the point: see fixed_functions.py. */
static inline int32_t diagmem_log_of_sum(int32_t x) {
    const int32_t quarter = 1 << 23;
    const int32_t sqrt_half = 1518500250;
    const int32_t fourth_root = 1805811301;
    const int32_t zeros = diagmem_leading_zeros((uint32_t)x);
    const int32_t headroom = diagmem_leading_zeros((uint32_t)diagmem_high_mul(x, sqrt_half)) - 1;
    const int32_t whole = diagmem_high_mul(diagmem_saturating_shift(x, zeros - 1), sqrt_half);
    const int32_t one = diagmem_saturating_shift(whole, 1);
    const int32_t other = diagmem_saturating_shift(x, headroom);
    const int32_t r = one < other ? one : other;
    const int32_t upper = (DIAGMEM_LOG_SUM_INTEGER_BITS - zeros) * (1 << 25) + quarter;
    const int32_t lower = (DIAGMEM_LOG_SUM_INTEGER_BITS - headroom) * (1 << 25) - quarter;
    const int32_t power = upper > lower ? upper : lower;
    const int32_t p = (int32_t)(((int64_t)r + fourth_root + 1) >> 1);
    const int32_t q = 2 * (r - fourth_root);
    const int32_t square = diagmem_high_mul(q, q);
    const int32_t numerator = diagmem_high_mul(q, r) + diagmem_high_mul(diagmem_high_mul(q, square), 117049297);
    const int32_t denominator =
        diagmem_high_mul(p, 1057819769 + q + diagmem_high_mul(127690142, square)) + diagmem_high_mul(638450708, q);
    const int32_t fraction =
        diagmem_high_mul(diagmem_rounding_shift(numerator, 6), diagmem_one_over_one_plus(denominator));
    return diagmem_saturating_shift(diagmem_high_mul(power, 1488522236) + fraction, 1);
}

static inline void diagmem_log_softmax_s8(const diagmem_log_softmax_s8_params *p, const int8_t *in, int8_t *out) {
    for (int32_t row = 0; row < p->rows; ++row, in += p->size, out += p->size) {
        int32_t largest = INT8_MIN;
        for (int32_t c = 0; c < p->size; ++c) {
            largest = in[c] > largest ? in[c] : largest;
        }
        int32_t sum = 0;
        for (int32_t c = 0; c < p->size; ++c) {
            const int32_t difference = in[c] - largest;
            if (difference >= p->least_difference) {
                const int32_t scaled = diagmem_rescale(difference, p->mantissa, p->shift);
                sum += diagmem_rounding_shift(diagmem_exp_of_negative(scaled), DIAGMEM_LOG_SUM_INTEGER_BITS);
            }
        }
        const int32_t logarithm = diagmem_log_of_sum(sum);
        const int32_t lowest = diagmem_rescale(logarithm + INT32_MIN, p->back_mantissa, p->back_shift);
        const int32_t shortest = lowest > p->least_difference - 1 ? lowest : p->least_difference - 1;
        for (int32_t c = 0; c < p->size; ++c) {
            const int32_t difference = in[c] - largest;
            int32_t value = INT8_MIN;
            if (difference > shortest) {
                const int32_t scaled = diagmem_rescale(difference, p->mantissa, p->shift);
                value = diagmem_rounding_shift(scaled - logarithm, 22) + INT8_MAX;
            }
            out[c] = (int8_t)diagmem_clamp(value, INT8_MIN, INT8_MAX);
        }
    }
}
