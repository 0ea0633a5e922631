/* ADD, SUB, SQUARED_DIFFERENCE, MUL, DIV, MAXIMUM, MINIMUM on integers, quantised ones (s8, u8, s16) and plain ones
 * (s32). */
#include "../numerics/_fixed_exp.h"
#include "_pairwise.h"

/* To a scale that both inputs share. */
typedef struct {
    int32_t zero_point;
    int32_t mantissa;
    int32_t shift;
} diagmem_addend;

typedef struct {
    diagmem_broadcast shape;
    int32_t left_shift; /* bits behind the point in that scale */
    diagmem_addend first;
    diagmem_addend second;
    diagmem_requantisation output;
} diagmem_sum_params;

static inline int32_t diagmem_scaled(const diagmem_sum_params *p, const diagmem_addend *from, int32_t x) {
    return diagmem_rescale((x - from->zero_point) * (1 << p->left_shift), from->mantissa, from->shift);
}

static inline int32_t diagmem_sum(const diagmem_sum_params *p, int32_t x, int32_t y) {
    return diagmem_requantise(&p->output, diagmem_scaled(p, &p->first, x) + diagmem_scaled(p, &p->second, y));
}

static inline int32_t diagmem_difference(const diagmem_sum_params *p, int32_t x, int32_t y) {
    return diagmem_requantise(&p->output, diagmem_scaled(p, &p->first, x) - diagmem_scaled(p, &p->second, y));
}

static inline int32_t diagmem_squared_difference(const diagmem_sum_params *p, int32_t x, int32_t y) {
    const int32_t difference = diagmem_scaled(p, &p->first, x) - diagmem_scaled(p, &p->second, y);
    return diagmem_requantise(&p->output, diagmem_wrapping_mul(difference, difference));
}

DIAGMEM_PAIRWISE(diagmem_add_s8, diagmem_sum_params, int8_t, int8_t, diagmem_sum(p, x, y))
DIAGMEM_PAIRWISE(diagmem_add_u8, diagmem_sum_params, uint8_t, uint8_t, diagmem_sum(p, x, y))
DIAGMEM_PAIRWISE(diagmem_add_s16, diagmem_sum_params, int16_t, int16_t, diagmem_sum(p, x, y))
DIAGMEM_PAIRWISE(diagmem_sub_s8, diagmem_sum_params, int8_t, int8_t, diagmem_difference(p, x, y))
DIAGMEM_PAIRWISE(diagmem_sub_u8, diagmem_sum_params, uint8_t, uint8_t, diagmem_difference(p, x, y))
DIAGMEM_PAIRWISE(diagmem_sub_s16, diagmem_sum_params, int16_t, int16_t, diagmem_difference(p, x, y))
DIAGMEM_PAIRWISE(diagmem_squared_difference_s8, diagmem_sum_params, int8_t, int8_t, diagmem_squared_difference(p, x, y))
DIAGMEM_PAIRWISE(diagmem_squared_difference_s16, diagmem_sum_params, int16_t, int16_t,
                 diagmem_squared_difference(p, x, y))

typedef struct {
    diagmem_broadcast shape;
    int32_t first_zero_point;
    int32_t second_zero_point;
    diagmem_requantisation output;
} diagmem_product_params;

static inline int32_t diagmem_product(const diagmem_product_params *p, int32_t x, int32_t y) {
    const int32_t product = diagmem_wrapping_mul(x - p->first_zero_point, y - p->second_zero_point);
    return diagmem_requantise(&p->output, product);
}

DIAGMEM_PAIRWISE(diagmem_mul_s8, diagmem_product_params, int8_t, int8_t, diagmem_product(p, x, y))
DIAGMEM_PAIRWISE(diagmem_mul_u8, diagmem_product_params, uint8_t, uint8_t, diagmem_product(p, x, y))
DIAGMEM_PAIRWISE(diagmem_mul_s16, diagmem_product_params, int16_t, int16_t, diagmem_product(p, x, y))

/* The reciprocal of the divisor with 31 bits, times the dividend with all bits that there are. What is divided by 0
 * becomes the largest number of its sign. */
static inline int32_t diagmem_quotient(const diagmem_product_params *p, int32_t x, int32_t y) {
    const diagmem_requantisation *const to = &p->output;
    const int32_t divisor = y - p->second_zero_point;
    const int32_t dividend = divisor < 0 ? p->first_zero_point - x : x - p->first_zero_point;
    if (divisor == 0) {
        return dividend > 0 ? to->high : dividend < 0 ? to->low : diagmem_clamp(to->zero_point, to->low, to->high);
    }
    const uint32_t size = (uint32_t)(divisor < 0 ? -divisor : divisor);
    const int32_t zeros = diagmem_leading_zeros(size);
    const int32_t inverse = diagmem_one_over_one_plus((int32_t)((size << zeros) - 0x80000000u));
    const int32_t headroom = diagmem_leading_zeros((uint32_t)(dividend < 0 ? -dividend - 1 : dividend)) - 1;
    const int32_t whole = diagmem_high_mul(diagmem_wrapping_shift(dividend, headroom), inverse);
    const int32_t right = 31 - zeros + headroom - to->shift;
    const int32_t scaled = diagmem_high_mul(whole, to->mantissa);
    const int32_t result = right > 31 ? 0 : diagmem_rounding_shift(scaled, right < 0 ? 0 : right);
    return diagmem_clamp(diagmem_wrapping_add(result, to->zero_point), to->low, to->high);
}

DIAGMEM_PAIRWISE(diagmem_div_s8, diagmem_product_params, int8_t, int8_t, diagmem_quotient(p, x, y))

typedef struct {
    diagmem_broadcast shape;
    int32_t low; /* the range that the activation leaves */
    int32_t high;
} diagmem_plain_params;

DIAGMEM_PAIRWISE(diagmem_maximum_s8, diagmem_plain_params, int8_t, int8_t, x > y ? x : y)
DIAGMEM_PAIRWISE(diagmem_maximum_u8, diagmem_plain_params, uint8_t, uint8_t, x > y ? x : y)
DIAGMEM_PAIRWISE(diagmem_maximum_s16, diagmem_plain_params, int16_t, int16_t, x > y ? x : y)
DIAGMEM_PAIRWISE(diagmem_maximum_s32, diagmem_plain_params, int32_t, int32_t, x > y ? x : y)
DIAGMEM_PAIRWISE(diagmem_minimum_s8, diagmem_plain_params, int8_t, int8_t, x < y ? x : y)
DIAGMEM_PAIRWISE(diagmem_minimum_u8, diagmem_plain_params, uint8_t, uint8_t, x < y ? x : y)
DIAGMEM_PAIRWISE(diagmem_minimum_s16, diagmem_plain_params, int16_t, int16_t, x < y ? x : y)
DIAGMEM_PAIRWISE(diagmem_minimum_s32, diagmem_plain_params, int32_t, int32_t, x < y ? x : y)

/* Sums and products of plain integers that do not fit wrap around. */
#define DIAGMEM_PLAIN_S32(name, operation) \
    DIAGMEM_PAIRWISE(name, diagmem_plain_params, int32_t, int32_t, diagmem_clamp(operation(x, y), p->low, p->high))

DIAGMEM_PLAIN_S32(diagmem_add_s32, diagmem_wrapping_add)
DIAGMEM_PLAIN_S32(diagmem_sub_s32, diagmem_wrapping_sub)
DIAGMEM_PLAIN_S32(diagmem_mul_s32, diagmem_wrapping_mul)

static inline int32_t diagmem_squared_difference_of_s32(int32_t x, int32_t y) {
    const int32_t difference = diagmem_wrapping_sub(x, y);
    return diagmem_wrapping_mul(difference, difference);
}

DIAGMEM_PAIRWISE(diagmem_squared_difference_s32, diagmem_plain_params, int32_t, int32_t,
                 diagmem_squared_difference_of_s32(x, y))

/* Towards 0; a division by 0 gives 0. */
DIAGMEM_PAIRWISE(diagmem_div_s32, diagmem_plain_params, int32_t, int32_t,
                 diagmem_clamp(y == 0 ? 0 : (int32_t)((int64_t)x / y), p->low, p->high))
