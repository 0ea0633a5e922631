/* Four products in single precision, rounded once, halves to even. */
#ifndef DIAGMEM_MVE_TO_EVEN_H
#define DIAGMEM_MVE_TO_EVEN_H

#include "_dsp.h"
#include "_to_even.h"

#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1) && defined(__GNUC__)

#include <arm_mve.h>

DIAGMEM_IN_ORDER

/* x times a single for each lane; those that no output can hold are only known to be large. */
static inline int32x4_t diagmem_four_to_even(int32x4_t x, int32x4_t single) {
#if __ARM_FEATURE_MVE & 2
    return vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(x), vreinterpretq_f32_s32(single)));
#else
    int32_t lanes[4], singles[4];
    vstrwq_s32(lanes, x);
    vstrwq_s32(singles, single);
    for (int32_t i = 0; i < 4; ++i) {
        lanes[i] = diagmem_scaled_to_even(lanes[i], singles[i], -511, 511);
    }
    return vldrwq_s32(lanes);
#endif
}

/* The same of two pixels. */
static inline void diagmem_two_fours_to_even(int32x4_t *x, int32x4_t *y, const int32_t *singles) {
    const int32x4_t single = vldrwq_s32(singles);
    *x = diagmem_four_to_even(*x, single);
    *y = diagmem_four_to_even(*y, single);
}

DIAGMEM_IN_ANY_ORDER

#endif

#endif
