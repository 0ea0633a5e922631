/* ADD and MUL on 8-bit integers, four elements at a time where neighbours are neighbours in memory: the inputs of four
 * elements are read, then these are written. */
#include "../loops/_broadcast.h"
#include "../numerics/_mve.h"

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

#define DIAGMEM_SUM_MVE(p, x, y) (diagmem_addend_mve(&(p)->first, x) + diagmem_addend_mve(&(p)->second, y))
#define DIAGMEM_PRODUCT_MVE(p, x, y) (((x) - (p)->first_zero_point) * ((y) - (p)->second_zero_point))

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

#define DIAGMEM_FOUR_SUMS_MVE(p, x, y) \
    vaddq_s32(diagmem_four_addends(&(p)->first, x), diagmem_four_addends(&(p)->second, y))
#define DIAGMEM_FOUR_PRODUCTS_MVE(p, x, y) \
    vmulq_s32(vsubq_n_s32(x, (p)->first_zero_point), vsubq_n_s32(y, (p)->second_zero_point))

static inline int32x4_t diagmem_four_results(const diagmem_requantisation *to, int32x4_t x) {
    x = vqaddq_n_s32(diagmem_scale_down_four(x, to->mantissa, to->shift), to->zero_point);
    return vminq_s32(vmaxq_s32(x, vdupq_n_s32(to->low)), vdupq_n_s32(to->high));
}

#define DIAGMEM_FOURS_MVE(four, one)                                                                           \
    for (; left >= 4; left -= 4, first += 4, second += 4, out += 4) {                                          \
        const int32x4_t x = vldrbq_s32(first);                                                                 \
        const int32x4_t y = vldrbq_s32(second);                                                                \
        vstrbq_s32(out, diagmem_four_results(&p->output, four(p, x, y)));                                      \
    }                                                                                                          \
    if (left > 0) {                                                                                            \
        const mve_pred16_t some = vctp32q((uint32_t)left);                                                     \
        const int32x4_t x = vldrbq_z_s32(first, some);                                                         \
        const int32x4_t y = vldrbq_z_s32(second, some);                                                        \
        vstrbq_p_s32(out, diagmem_four_results(&p->output, four(p, x, y)), some);                              \
    }

#else

#define DIAGMEM_FOURS_MVE(four, one)                                                                           \
    while (left > 0) {                                                                                         \
        int8_t results[4];                                                                                     \
        const int32_t some = left < 4 ? left : 4;                                                              \
        for (int32_t i = 0; i < some; ++i) {                                                                   \
            results[i] = (int8_t)diagmem_requantise(&p->output, one(p, *first++, *second++));                  \
        }                                                                                                      \
        for (int32_t i = 0; i < some; ++i) {                                                                   \
            *out++ = results[i];                                                                               \
        }                                                                                                      \
        left -= some;                                                                                          \
    }

DIAGMEM_IN_ORDER

#endif

/* Defines the kernel `name`; `four` makes numbers of four elements of each input, `one` of one. */
#define DIAGMEM_PAIRWISE_MVE_S8(name, four, one)                                                                       \
    static DIAGMEM_APART void name##_row(const name##_params *p, const int8_t *first, const int8_t *second,            \
                                         int8_t *out) {                                                                \
        const int32_t first_step = p->shape.first[DIAGMEM_AXES - 1];                                                   \
        const int32_t second_step = p->shape.second[DIAGMEM_AXES - 1];                                                 \
        const int32_t out_step = p->shape.out[DIAGMEM_AXES - 1];                                                       \
        int32_t left = p->shape.size[DIAGMEM_AXES - 1];                                                                \
        if (first_step == 1 && second_step == 1 && out_step == 1) {                                                    \
            DIAGMEM_FOURS_MVE(four, one)                                                                               \
            return;                                                                                                    \
        }                                                                                                              \
        for (; left > 0; --left, first += first_step, second += second_step, out += out_step) {                        \
            *out = (int8_t)diagmem_requantise(&p->output, one(p, *first, *second));                                    \
        }                                                                                                              \
    }                                                                                                                  \
    static inline void name(const name##_params *p, const int8_t *first, const int8_t *second, int8_t *out) {          \
        diagmem_place at = {{0}, 0, 0, 0};                                                                             \
        do {                                                                                                           \
            name##_row(p, first + at.first, second + at.second, out + at.out);                                         \
        } while (diagmem_next_row(&p->shape, &at));                                                                    \
    }

DIAGMEM_PAIRWISE_MVE_S8(diagmem_add_mve_s8, DIAGMEM_FOUR_SUMS_MVE, DIAGMEM_SUM_MVE)
DIAGMEM_PAIRWISE_MVE_S8(diagmem_mul_mve_s8, DIAGMEM_FOUR_PRODUCTS_MVE, DIAGMEM_PRODUCT_MVE)

DIAGMEM_IN_ANY_ORDER
