/* ADD and MUL on 8-bit integers whose results are rounded once, halves to even, four elements at a time. */
#include "_once_s8.h"
#include "_pairwise_mve_s8.h"

#if DIAGMEM_HAS_MVE

DIAGMEM_IN_ORDER

/* Four outputs, some of which are close to a step. */
static DIAGMEM_APART int32x4_t diagmem_four_beside_steps(const diagmem_steps *to, int32x4_t sums, int32x4_t x,
                                                         int32x4_t y) {
    int32_t lanes[4], first[4], second[4];
    vstrwq_s32(lanes, sums);
    vstrwq_s32(first, x);
    vstrwq_s32(second, y);
    for (int32_t i = 0; i < 4; ++i) {
        lanes[i] = diagmem_on_steps(to, lanes[i], first[i], second[i]);
    }
    return vldrwq_s32(lanes);
}

static inline int32x4_t diagmem_four_on_steps(const diagmem_steps *to, int32x4_t sums, int32x4_t x, int32x4_t y) {
    const int32x4_t mask = vdupq_n_s32((1 << to->shift) - 1);
    const uint32x4_t part = vreinterpretq_u32_s32(vandq_s32(vaddq_n_s32(sums, to->near), mask));
    if (vcmphiq_u32(vdupq_n_u32(to->width), part) != 0) {
        return diagmem_four_beside_steps(to, sums, x, y);
    }
    return vminq_s32(vmaxq_s32(vshlq_r_s32(sums, -to->shift), vdupq_n_s32(to->low)), vdupq_n_s32(to->high));
}

static inline int32x4_t diagmem_four_sums_once(const diagmem_add_once_s8_params *p, int32x4_t x, int32x4_t y) {
    const int32x4_t sums = vmlaq_n_s32(vmlaq_n_s32(vdupq_n_s32(p->start), x, p->first), y, p->second);
    return diagmem_four_on_steps(&p->output, sums, x, y);
}

static inline int32x4_t diagmem_four_products_once(const diagmem_mul_once_s8_params *p, int32x4_t x, int32x4_t y) {
    const int32x4_t a = vsubq_n_s32(x, p->first_zero_point), b = vsubq_n_s32(y, p->second_zero_point);
    const int32x4_t scaled = vmulhq_s32(vshlq_n_s32(vmulq_s32(a, b), 14), vdupq_n_s32(p->factor));
    return diagmem_four_on_steps(&p->output, vaddq_n_s32(scaled, p->start), x, y);
}

DIAGMEM_IN_ANY_ORDER

#endif

DIAGMEM_IN_ORDER

DIAGMEM_PAIRWISE_MVE_S8(diagmem_add_once_mve_s8, diagmem_four_sums_once, diagmem_sum_once)
DIAGMEM_PAIRWISE_MVE_S8(diagmem_mul_once_mve_s8, diagmem_four_products_once, diagmem_product_once)

DIAGMEM_IN_ANY_ORDER
