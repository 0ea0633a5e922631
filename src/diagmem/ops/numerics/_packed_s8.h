/* Dot products of 8-bit inputs with 8-bit weights, two channels of which share a 16-bit number.
 *
 * The weights a and b of two channels are stored as 256 * a + b. One multiplication of it gives 256 * A + B, another
 * one of b alone gives B; so 256 * A is a difference at the end, and int8 weights stay bytes in flash. Sums wrap around
 * on the way; at the end 256 * A and 256 * B fit.
 *
 * Four inputs e0 to e3 meet their weights as the pairs (e0, e2) and (e1, e3), as SXTB16 takes them out of a word. A
 * stream of 64-bit numbers holds blocks of channels: their sums at the start, their weights, then for each channel a
 * multiplier, an addend and a shift.
 *
 * Where numbers allow it, blocks are shorter and faster: the start of 256 times a sum has all in it that is ever added,
 * each channel has a multiplier, and one shift is that of all. There a may have all its signs changed, for 256 * a + b
 * to fit. Of blocks with channels that must be rounded the second multiplier is odd. */
#ifndef DIAGMEM_PACKED_S8_H
#define DIAGMEM_PACKED_S8_H

#include "_dsp.h"

#ifdef DIAGMEM_TO_EVEN
#include "_fixed_point.h"
#endif

/* 256 times a sum to an output. After a ReLU, whose outputs are the least number when a sum is negative, rounding does
 * not ask for the sign. */
#define DIAGMEM_POSITIVE(x, m, k, s) diagmem_saturated_s8(diagmem_add_high(k, x, m) >> (s))
#define DIAGMEM_ANY_SIGN(x, m, k, s) diagmem_saturated_s8(diagmem_add_high((k) + (((x) >> 31) * 128), x, m) >> (s))

/* 256 times a sum, started so that its product needs but a shift. */
#define DIAGMEM_FITTED(x, m, shift) diagmem_saturated_##shift##_s8(diagmem_high_product(x, m))

#ifdef DIAGMEM_TO_EVEN
/* 256 times a sum, with `zero_point` + 128 in its lowest bits, rounded once, halves to even. */
static DIAGMEM_APART int8_t diagmem_even_of_256(int32_t x, int32_t single) {
    const int32_t zero_point = (x & 0xff) - 128;
    return (int8_t)(diagmem_scaled_to_even(x >> 8, single, -128 - zero_point, 127 - zero_point) + zero_point);
}

/* The same of a channel that may have all signs changed: then the single has, too. */
static DIAGMEM_APART int8_t diagmem_even_of_sign(int32_t x, int32_t single) {
    return single < 0 ? diagmem_even_of_256(-x, -single) : diagmem_even_of_256(x, single);
}

/* 256 times a sum that starts from k, on a line, or rounded where the shift is negative. */
#define DIAGMEM_EITHER(x, m, k, s)                                \
    ((s) < 0 ? diagmem_even_of_sign(diagmem_wrapping_add(x, k), m) \
             : diagmem_saturated_s8(diagmem_high_product(diagmem_wrapping_add(x, k), m) >> (s)))

/* The same as DIAGMEM_FITTED, or rounded: for the channel a of 256 * a + b, which may have all signs changed, where the
 * multiplier is odd, for b where it is negative. Its other bits are then those of a single. */
#define DIAGMEM_MIXED_A(x, m, shift) \
    ((m) & 1 ? diagmem_even_of_sign(x, ((m) - ((m) < 0 ? -1 : 1)) / 2) : DIAGMEM_FITTED(x, m, shift))
#define DIAGMEM_MIXED_B(x, m, shift) \
    ((m) < 0 ? diagmem_even_of_256(x, -(m) >> 1) : DIAGMEM_FITTED(x, (m) & -2, shift))
#endif

DIAGMEM_IN_ORDER

static inline int32_t diagmem_times_256(int32_t x) {
    return (int32_t)((uint32_t)x << 8);
}

static inline int32_t diagmem_plus_256_times(int32_t start, int32_t x) {
    return (int32_t)((uint32_t)start + ((uint32_t)x << 8));
}

static inline int32_t diagmem_minus(int32_t x, int32_t y) {
    return (int32_t)((uint32_t)x - (uint32_t)y);
}

DIAGMEM_IN_ANY_ORDER

#endif
