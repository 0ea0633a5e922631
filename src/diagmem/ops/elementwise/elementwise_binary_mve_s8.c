/* ADD and MUL on 8-bit integers, four elements at a time. */
#include "_pairwise_mve_s8.h"

/* An input of a sum: what is taken off it, and what the rest is multiplied by, with 20 bits behind the point. */
typedef struct {
    int32_t zero_point;
    int32_t mantissa;
    int32_t shift; /* to the right, at most 0 */
} diagmem_mve_addend;

typedef struct {
    diagmem_broadcast shape;
    diagmem_mve_addend first;
    diagmem_mve_addend second;
    diagmem_requantisation output; /* shift: at most 0 */
} diagmem_add_mve_s8_params;

typedef struct {
    diagmem_broadcast shape;
    int32_t first_zero_point;
    int32_t second_zero_point;
    diagmem_requantisation output; /* shift: at most 0 */
} diagmem_mul_mve_s8_params;

static inline int32_t diagmem_addend_mve(const diagmem_mve_addend *from, int32_t x) {
    return diagmem_rescale((x - from->zero_point) * (1 << 20), from->mantissa, from->shift);
}

#define DIAGMEM_SUM_MVE(p, x, y) \
    diagmem_requantise(&(p)->output, diagmem_addend_mve(&(p)->first, x) + diagmem_addend_mve(&(p)->second, y))
#define DIAGMEM_PRODUCT_MVE(p, x, y) \
    diagmem_requantise(&(p)->output, ((x) - (p)->first_zero_point) * ((y) - (p)->second_zero_point))

#if DIAGMEM_HAS_MVE

DIAGMEM_IN_ORDER

/* x times a real multiplier below 1, rounded twice. */
static inline int32x4_t diagmem_scale_down_four(int32x4_t x, int32_t mantissa, int32_t shift) {
    x = vqrdmulhq_n_s32(x, mantissa);
    if (shift != 0) {
        x = vaddq_s32(x, vshrq_n_s32(x, 31));
    }
    return vrshlq_n_s32(x, shift);
}

static inline int32x4_t diagmem_four_addends(const diagmem_mve_addend *from, int32x4_t x) {
    return diagmem_scale_down_four(vshlq_n_s32(vsubq_n_s32(x, from->zero_point), 20), from->mantissa, from->shift);
}

static inline int32x4_t diagmem_four_results(const diagmem_requantisation *to, int32x4_t x) {
    x = vqaddq_n_s32(diagmem_scale_down_four(x, to->mantissa, to->shift), to->zero_point);
    return vminq_s32(vmaxq_s32(x, vdupq_n_s32(to->low)), vdupq_n_s32(to->high));
}

#define DIAGMEM_FOUR_SUMS_MVE(p, x, y) \
    diagmem_four_results(&(p)->output, \
                         vaddq_s32(diagmem_four_addends(&(p)->first, x), diagmem_four_addends(&(p)->second, y)))
#define DIAGMEM_FOUR_PRODUCTS_MVE(p, x, y) \
    diagmem_four_results(&(p)->output, \
                         vmulq_s32(vsubq_n_s32(x, (p)->first_zero_point), vsubq_n_s32(y, (p)->second_zero_point)))

DIAGMEM_IN_ANY_ORDER

#endif

DIAGMEM_IN_ORDER

DIAGMEM_PAIRWISE_MVE_S8(diagmem_add_mve_s8, DIAGMEM_FOUR_SUMS_MVE, DIAGMEM_SUM_MVE)
DIAGMEM_PAIRWISE_MVE_S8(diagmem_mul_mve_s8, DIAGMEM_FOUR_PRODUCTS_MVE, DIAGMEM_PRODUCT_MVE)

DIAGMEM_IN_ANY_ORDER
