/* Exponentials and reciprocals in TensorFlow Lite's integer arithmetic, exact to the bit: see fixed_point.py. */
#ifndef DIAGMEM_FIXED_EXP_H
#define DIAGMEM_FIXED_EXP_H

#include "_fixed_point.h"

/* x * 2^exponent, held within 32 bits. */
static inline int32_t diagmem_saturating_shift(int32_t x, int32_t exponent) {
    const int64_t shifted = (int64_t)x * ((int64_t)1 << exponent);
    return shifted > INT32_MAX ? INT32_MAX : shifted < INT32_MIN ? INT32_MIN : (int32_t)shifted;
}

static inline int32_t diagmem_leading_zeros(uint32_t x) {
    int32_t count = 32;
    while (x != 0) {
        x >>= 1;
        --count;
    }
    return count;
}

/* exp(x) with 31 fractional bits, for x in [-1/4, 0). */
static inline int32_t diagmem_exp_near_zero(int32_t x) {
    const int32_t exp_minus_eighth = 1895147668;
    const int32_t third = 715827883;
    const int32_t y = x + (1 << 28);
    const int32_t y2 = diagmem_high_mul(y, y);
    const int32_t y3 = diagmem_high_mul(y2, y);
    const int32_t y4 = diagmem_high_mul(y2, y2);
    const int32_t tail = diagmem_high_mul(diagmem_rounding_shift(y4, 2) + y3, third) + y2;
    return exp_minus_eighth + diagmem_high_mul(exp_minus_eighth, y + diagmem_rounding_shift(tail, 1));
}

/* exp(x) with 31 fractional bits, for x <= 0 with 26. */
static inline int32_t diagmem_exp_of_negative(int32_t x) {
    /* exp of -1/4, -1/2, -1, -2, -4, -8, -16 */
    static const int32_t exponentials[7] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    const int32_t quarter = 1 << 24;
    const int32_t rest = (x & (quarter - 1)) - quarter;
    const int32_t whole = rest - x;
    int32_t result = diagmem_exp_near_zero(rest * 32);
    for (int32_t i = 0; i < 7; ++i) {
        if (whole & (quarter << i)) {
            result = diagmem_high_mul(result, exponentials[i]);
        }
    }
    return x == 0 ? INT32_MAX : result;
}

/* 1 / (1 + x) for x in [0, 1), 31 fractional bits: Newton's method from a straight line. */
static inline int32_t diagmem_one_over_one_plus(int32_t x) {
    const int32_t half_denominator = (int32_t)(((int64_t)x + INT32_MAX + 1) / 2);
    int32_t estimate = 1515870810 + diagmem_high_mul(half_denominator, -1010580540);
    for (int32_t i = 0; i < 3; ++i) {
        const int32_t error = (1 << 29) - diagmem_high_mul(half_denominator, estimate);
        estimate += diagmem_saturating_shift(diagmem_high_mul(estimate, error), 2);
    }
    return diagmem_saturating_shift(estimate, 1);
}

#endif
