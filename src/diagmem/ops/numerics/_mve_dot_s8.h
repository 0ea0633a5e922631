/* Products with vectors of 16 inputs, eight output channels at a time. */
#ifndef DIAGMEM_MVE_DOT_S8_H
#define DIAGMEM_MVE_DOT_S8_H

#include "_mve.h"

#if DIAGMEM_HAS_MVE

DIAGMEM_IN_ORDER

#define DIAGMEM_TWO_BY_TWO(multiply)                                       \
    "vldrb.8 %q[u], [%[x]], #16\n\t"                                       \
    "vldrb.8 %q[f], [%[w]], #16\n\t" multiply " %[a], %q[u], %q[f]\n\t"    \
    "vldrb.8 %q[v], [%[y]], #16\n\t" multiply " %[c], %q[v], %q[f]\n\t"    \
    "vldrb.8 %q[f], [%[w]], #16\n\t" multiply " %[b], %q[u], %q[f]\n\t"    \
    multiply " %[d], %q[v], %q[f]\n\t"

/* Two channels of two pixels, in lanes `low` and `high` of `first` and `second`. */
#define DIAGMEM_TWO_CHANNELS(first, second, low, high)            \
    DIAGMEM_TWO_BY_TWO("vmladav.s8")                              \
    "wls lr, %[more], 2f\n"                                       \
    "1:\t" DIAGMEM_TWO_BY_TWO("vmladava.s8")                      \
    "le lr, 1b\n"                                                 \
    "2:\tsub %[x], %[x], %[size]\n\tsub %[y], %[y], %[size]\n\t"  \
    "vmov " first "[" high "], " first "[" low "], %[a], %[b]\n\t" \
    "vmov " second "[" high "], " second "[" low "], %[c], %[d]\n\t"

/* All channels of two pixels, whose windows lie from `x` and `y` on, filled up to a multiple of 16 bytes; outputs of
 * the second one lie `pitch` behind those of the first. Weights are those of channels 0 and 4 of eight, 2 and 6, 1 and
 * 5, 3 and 7: for each 16 inputs those of one, then those of the other. */
static DIAGMEM_APART void diagmem_two_pixels_mve_s8(const diagmem_eights_s8 *p, const int8_t *w, const int8_t *x,
                                                    const int8_t *y, int32_t size, int8_t *out, int32_t pitch) {
    const int32_t *t = p->eights;
    const int32_t more = (size >> 4) - 1;
    for (int32_t left = p->channels; left > 0; left -= 8) {
        int32x4_t even, odd, next_even, next_odd, some;
        int16x8_t first, second;
        int32_t a, b, c, d;
        int8x16_t u, v, f;
        __asm__ volatile(
            DIAGMEM_TWO_CHANNELS("%q[s]", "%q[t]", "0", "2")
            DIAGMEM_TWO_CHANNELS("%q[s]", "%q[t]", "1", "3")
            DIAGMEM_TWO_CHANNELS("%q[q]", "%q[r]", "0", "2")
            DIAGMEM_TWO_CHANNELS("%q[q]", "%q[r]", "1", "3")
            : [a] "=&Te"(a), [b] "=&Te"(b), [c] "=&Te"(c), [d] "=&Te"(d), [u] "=&w"(u), [v] "=&w"(v), [f] "=&w"(f),
              [s] "=&w"(even), [t] "=&w"(next_even), [q] "=&w"(odd), [r] "=&w"(next_odd), [x] "+&r"(x), [y] "+&r"(y),
              [w] "+&r"(w)
            : [more] "r"(more), [size] "r"(size)
            : "lr", "memory");
        some = vldrwq_s32(t);
        even = vaddq_s32(even, some);
        next_even = vaddq_s32(next_even, some);
        some = vldrwq_s32(t + 4);
        odd = vaddq_s32(odd, some);
        next_odd = vaddq_s32(next_odd, some);
#ifdef DIAGMEM_TO_EVEN
        if (p->rounding == DIAGMEM_ROUNDED_TO_EVEN) {
            diagmem_two_fours_to_even(&even, &next_even, t + 8);
            diagmem_two_fours_to_even(&odd, &next_odd, t + 12);
            if (p->is_positive) {
                first = diagmem_eight_outputs(p, even, odd, 1);
                second = diagmem_eight_outputs(p, next_even, next_odd, 1);
            } else {
                first = diagmem_eight_outputs(p, even, odd, 0);
                second = diagmem_eight_outputs(p, next_even, next_odd, 0);
            }
        } else
#endif
        if (p->is_positive) {
            diagmem_rescale_two_fours(&even, &next_even, t + 8, t + 16, 1);
            diagmem_rescale_two_fours(&odd, &next_odd, t + 12, t + 17, 1);
            first = diagmem_eight_outputs(p, even, odd, 1);
            second = diagmem_eight_outputs(p, next_even, next_odd, 1);
        } else {
            diagmem_rescale_two_fours(&even, &next_even, t + 8, t + 16, 0);
            diagmem_rescale_two_fours(&odd, &next_odd, t + 12, t + 17, 0);
            first = diagmem_eight_outputs(p, even, odd, 0);
            second = diagmem_eight_outputs(p, next_even, next_odd, 0);
        }
        diagmem_store_eight(first, left, out);
        diagmem_store_eight(second, left, out + pitch);
        t += DIAGMEM_EIGHT_WORDS;
        out += 8;
    }
}

/* Four channels of one pixel. */
#define DIAGMEM_FOUR_OF_ONE(sums)                                                                                      \
    do {                                                                                                               \
        const int8_t *x = from, *v = w + 2 * filled;                                                                   \
        int32_t a = 0, b = 0, c = 0, d = 0;                                                                            \
        int8x16_t u, f;                                                                                                \
        __asm__ volatile(                                                                                              \
            "dlstp.8 lr, %[size]\n"                                                                                    \
            "1:\tvldrb.8 %q[u], [%[x]], #16\n\t"                                                                       \
            "vldrb.8 %q[f], [%[w]], #16\n\tvmladava.s8 %[a], %q[u], %q[f]\n\t"                                         \
            "vldrb.8 %q[f], [%[w]], #16\n\tvmladava.s8 %[b], %q[u], %q[f]\n\t"                                         \
            "vldrb.8 %q[f], [%[v]], #16\n\tvmladava.s8 %[c], %q[u], %q[f]\n\t"                                         \
            "vldrb.8 %q[f], [%[v]], #16\n\tvmladava.s8 %[d], %q[u], %q[f]\n\t"                                         \
            "letp lr, 1b\n\t"                                                                                          \
            "vmov %q[s][2], %q[s][0], %[a], %[b]\n\tvmov %q[s][3], %q[s][1], %[c], %[d]"                               \
            : [a] "+&Te"(a), [b] "+&Te"(b), [c] "+&Te"(c), [d] "+&Te"(d), [u] "=&w"(u), [f] "=&w"(f), [x] "+&r"(x),    \
              [w] "+&r"(w), [v] "+&r"(v), [s] "=&w"(sums)                                                              \
            : [size] "r"(size)                                                                                         \
            : "lr", "memory");                                                                                         \
        w = v;                                                                                                         \
    } while (0)

/* All channels of one pixel, whose `size` inputs are in one piece; the same weights. */
static DIAGMEM_APART void diagmem_one_pixel_mve_s8(const diagmem_eights_s8 *p, const int8_t *w, const int8_t *from,
                                                   int32_t size, int8_t *out) {
    const int32_t filled = (size + 15) & ~15;
    const int32_t *t = p->eights;
    for (int32_t left = p->channels; left > 0; left -= 8, out += 8) {
        int32x4_t even, odd;
        DIAGMEM_FOUR_OF_ONE(even);
        DIAGMEM_FOUR_OF_ONE(odd);
        even = vaddq_s32(even, vldrwq_s32(t));
        odd = vaddq_s32(odd, vldrwq_s32(t + 4));
        diagmem_store_eight(diagmem_eight_rescaled(p, t, even, odd), left, out);
        t += DIAGMEM_EIGHT_WORDS;
    }
}

DIAGMEM_IN_ANY_ORDER

#else

/* The sums of eight channels of one pixel. `filled`: `size` as a multiple of 16. */
static inline void diagmem_eight_sums_mve_s8(const int8_t *x, const int8_t *w, int32_t size, int32_t filled,
                                             int32_t *sums) {
    for (int32_t i = 0; i < 8; ++i) {
        const int8_t *const own = w + (i >> 1) * 2 * filled + (i & 1) * 16;
        int32_t sum = 0;
        for (int32_t k = 0; k < size; ++k) {
            sum += x[k] * own[(k >> 4) * 32 + (k & 15)];
        }
        sums[(i & 1) * 4 + ((i >> 1) & 1) * 2 + (i >> 2)] = sum;
    }
}

static inline void diagmem_two_pixels_mve_s8(const diagmem_eights_s8 *p, const int8_t *w, const int8_t *x,
                                             const int8_t *y, int32_t size, int8_t *out, int32_t pitch) {
    const int32_t *t = p->eights;
    for (int32_t left = p->channels; left > 0; left -= 8, t += DIAGMEM_EIGHT_WORDS, w += 8 * size, out += 8) {
        int32_t sums[16];
        diagmem_eight_sums_mve_s8(x, w, size, size, sums);
        diagmem_eight_sums_mve_s8(y, w, size, size, sums + 8);
        diagmem_put_eight(p, t, sums, left, out);
        diagmem_put_eight(p, t, sums + 8, left, out + pitch);
    }
}

static inline void diagmem_one_pixel_mve_s8(const diagmem_eights_s8 *p, const int8_t *w, const int8_t *from,
                                            int32_t size, int8_t *out) {
    const int32_t *t = p->eights;
    const int32_t filled = (size + 15) & ~15;
    for (int32_t left = p->channels; left > 0; left -= 8, t += DIAGMEM_EIGHT_WORDS, w += 8 * filled, out += 8) {
        int32_t sums[8];
        diagmem_eight_sums_mve_s8(from, w, size, filled, sums);
        diagmem_put_eight(p, t, sums, left, out);
    }
}

#endif

#endif
