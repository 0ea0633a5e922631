/* AVERAGE_POOL_2D on 8-bit integers of two scales, rounded once, halves to even, four channels at a time: their windows
 * are read, then their outputs are written. Channels that remain follow one by one. */
#include "../numerics/_mve.h"
#include "_average_to_even.h"
#include "_fours_s8.h"

typedef diagmem_average_to_even diagmem_average_pool_2d_to_even_fours_s8_params;

DIAGMEM_IN_ORDER

/* Sums are real numbers, added one after the other. */
static DIAGMEM_APART void diagmem_four_means_to_even(const diagmem_average_to_even *p, const void *const *rows,
                                                     int32_t start, int32_t width, int8_t *out) {
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    int32_t count = 0;
#if DIAGMEM_HAS_MVE && (__ARM_FEATURE_MVE & 2)
    float32x4_t four = vdupq_n_f32(0.0f);
#endif
    for (int32_t k = 0; k < p->window.kernel_h; ++k) {
        const int8_t *in = (const int8_t *)rows[k] + (rows[k] == NULL ? 0 : start);
        for (int32_t left = rows[k] == NULL ? 0 : width; left > 0; --left, ++count, in += p->window.in_pitch) {
#if DIAGMEM_HAS_MVE && (__ARM_FEATURE_MVE & 2)
            const int32x4_t centred = vsubq_n_s32(vldrbq_s32(in), p->in_zero_point);
            four = vaddq_f32(four, vmulq_n_f32(vcvtq_f32_s32(centred), p->in_scale));
#else
            for (int32_t i = 0; i < 4; ++i) {
                const float real = p->in_scale * (float)(in[i] - p->in_zero_point);
                sums[i] += real;
            }
#endif
        }
    }
#if DIAGMEM_HAS_MVE && (__ARM_FEATURE_MVE & 2)
    vstrwq_f32(sums, four);
#endif
    for (int32_t i = 0; i < 4; ++i) {
        out[i] = diagmem_mean_to_even(p, sums[i], count);
    }
}

DIAGMEM_POOL_FOURS(diagmem_average_pool_2d_to_even_fours_s8, diagmem_four_means_to_even, diagmem_one_mean_to_even)

DIAGMEM_IN_ANY_ORDER
