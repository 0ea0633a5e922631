/* Vectors of 16 bytes: instructions of Arm's Helium (MVE), and what they mean in plain C. Channels come in eights: the
 * even ones of eight are in one vector of 32-bit sums, the odd ones in another. */
#ifndef DIAGMEM_MVE_H
#define DIAGMEM_MVE_H

#include "_dsp.h"
#include "_fixed_point.h"

#ifdef DIAGMEM_TO_EVEN
#include "_mve_to_even.h"
#endif

#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1) && defined(__GNUC__)
#define DIAGMEM_HAS_MVE 1
#include <arm_mve.h>
#else
#define DIAGMEM_HAS_MVE 0
#endif

/* Of eight channels: biases, multipliers, and shifts as bytes; the even ones come first. */
#define DIAGMEM_EIGHT_WORDS 18

/* From the sums of a pixel's channels to its outputs. */
typedef struct {
    int32_t channels;
    int32_t zero_point;
    int32_t low; /* the range that the activation leaves */
    int32_t high;
    int32_t is_positive; /* the least output is that of all negative sums, no shift is to the left, all of the range is
                            used */
#ifdef DIAGMEM_TO_EVEN
    int32_t rounding;
#endif
    const int32_t *eights; /* [channels / 8, rounded up][DIAGMEM_EIGHT_WORDS] */
} diagmem_eights_s8;

#if DIAGMEM_HAS_MVE

DIAGMEM_IN_ORDER

/* `count` bytes, at least one. */
static inline void diagmem_copy_s8(const int8_t *from, int32_t count, int8_t *to) {
    int8x16_t some;
    __asm__ volatile(
        "dlstp.8 lr, %3\n"
        "1:\tvldrb.8 %q2, [%0], #16\n\tvstrb.8 %q2, [%1], #16\n\tletp lr, 1b"
        : "+r"(from), "+r"(to), "=&w"(some)
        : "r"(count)
        : "lr", "memory");
}

static inline void diagmem_fill_s8(int32_t value, int32_t count, int8_t *to) {
    const int8x16_t some = vdupq_n_s8((int8_t)value);
    __asm__ volatile("dlstp.8 lr, %2\n1:\tvstrb.8 %q1, [%0], #16\n\tletp lr, 1b"
                     : "+r"(to)
                     : "w"(some), "r"(count)
                     : "lr", "memory");
}

/* x times a real multiplier for each lane, rounded twice; where `is_positive`, negative numbers may become any
 * others. */
static inline int32x4_t diagmem_rescale_four(int32x4_t x, int32x4_t mantissa, int32x4_t shift, int is_positive) {
    if (is_positive) {
        return vrshlq_s32(vqrdmulhq_s32(x, mantissa), shift);
    }
    x = vqrdmulhq_s32(vshlq_s32(x, vmaxq_s32(shift, vdupq_n_s32(0))), mantissa);
    shift = vminq_s32(shift, vdupq_n_s32(0));
    return vrshlq_s32(vaddq_s32(x, vshrq_n_s32(vandq_s32(x, shift), 31)), shift);
}

/* The same of two pixels. `t`: the multipliers; `shifts`: as bytes. */
static inline void diagmem_rescale_two_fours(int32x4_t *x, int32x4_t *y, const int32_t *t, const int32_t *shifts,
                                             int is_positive) {
    const int32x4_t mantissa = vldrwq_s32(t);
    const int32x4_t shift = vldrbq_s32((const int8_t *)shifts);
    *x = diagmem_rescale_four(*x, mantissa, shift, is_positive);
    *y = diagmem_rescale_four(*y, mantissa, shift, is_positive);
}

/* Outputs of eight channels, as 16-bit numbers in the range of 8. */
static inline int16x8_t diagmem_eight_outputs(const diagmem_eights_s8 *p, int32x4_t even, int32x4_t odd,
                                              int is_positive) {
    int16x8_t all = vqmovntq_s32(vqmovnbq_s32(vreinterpretq_s16_s32(even), even), odd);
    all = vqaddq_n_s16(all, (int16_t)p->zero_point);
    if (!is_positive) {
        all = vmaxq_s16(all, vdupq_n_s16((int16_t)p->low));
        all = vminq_s16(all, vdupq_n_s16((int16_t)p->high));
    }
    return vreinterpretq_s16_s8(vqmovnbq_s16(vreinterpretq_s8_s16(all), all));
}

/* The same from sums that began with the biases. `t`: what is known of the channels. */
static inline int16x8_t diagmem_eight_rescaled(const diagmem_eights_s8 *p, const int32_t *t, int32x4_t even,
                                               int32x4_t odd) {
    const int is_positive = p->is_positive != 0;
#ifdef DIAGMEM_TO_EVEN
    if (p->rounding == DIAGMEM_ROUNDED_TO_EVEN) {
        even = diagmem_four_to_even(even, vldrwq_s32(t + 8));
        odd = diagmem_four_to_even(odd, vldrwq_s32(t + 12));
        return diagmem_eight_outputs(p, even, odd, is_positive);
    }
#endif
    even = diagmem_rescale_four(even, vldrwq_s32(t + 8), vldrbq_s32((const int8_t *)(t + 16)), is_positive);
    odd = diagmem_rescale_four(odd, vldrwq_s32(t + 12), vldrbq_s32((const int8_t *)(t + 17)), is_positive);
    return diagmem_eight_outputs(p, even, odd, is_positive);
}

/* The first `left` of them, or all. */
static inline void diagmem_store_eight(int16x8_t outputs, int32_t left, int8_t *out) {
    if (left >= 8) {
        vstrbq_s16(out, outputs);
    } else {
        vstrbq_p_s16(out, outputs, vctp16q((uint32_t)left));
    }
}

DIAGMEM_IN_ANY_ORDER

#else

static inline void diagmem_copy_s8(const int8_t *from, int32_t count, int8_t *to) {
    for (; count > 0; --count) {
        *to++ = *from++;
    }
}

static inline void diagmem_fill_s8(int32_t value, int32_t count, int8_t *to) {
    for (; count > 0; --count) {
        *to++ = (int8_t)value;
    }
}

/* Where a channel of eight stands. */
static inline int32_t diagmem_lane(int32_t channel) {
    return (channel & 1) * 4 + (channel >> 1);
}

/* The first `left` outputs, or all, of sums without bias. */
static inline void diagmem_put_eight(const diagmem_eights_s8 *p, const int32_t *t, const int32_t *sums, int32_t left,
                                     int8_t *out) {
    for (int32_t c = 0; c < 8 && c < left; ++c) {
        const int32_t i = diagmem_lane(c);
        const int32_t sum = diagmem_wrapping_add(sums[c], t[i]);
#ifdef DIAGMEM_TO_EVEN
        if (p->rounding == DIAGMEM_ROUNDED_TO_EVEN) {
            const int32_t low = p->low - p->zero_point, high = p->high - p->zero_point;
            out[c] = (int8_t)(diagmem_scaled_to_even(sum, t[8 + i], low, high) + p->zero_point);
            continue;
        }
#endif
        const int32_t scaled = diagmem_rescale(sum, t[8 + i], ((const int8_t *)(t + 16))[i]);
        out[c] = (int8_t)diagmem_clamp(scaled + p->zero_point, p->low, p->high);
    }
}

#endif

#endif
