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
 * each channel has a multiplier, and one shift is that of all. */
#ifndef DIAGMEM_PACKED_S8_H
#define DIAGMEM_PACKED_S8_H

#include "_dsp.h"

/* 256 times a sum to an output. After a ReLU, whose outputs are the least number when a sum is negative, rounding does
 * not ask for the sign. */
#define DIAGMEM_POSITIVE(x, m, k, s) diagmem_saturated_s8(diagmem_add_high(k, x, m) >> (s))
#define DIAGMEM_ANY_SIGN(x, m, k, s) diagmem_saturated_s8(diagmem_add_high((k) + (((x) >> 31) * 128), x, m) >> (s))

/* 256 times a sum, started so that its product needs but a shift. */
#define DIAGMEM_FITTED(x, m, shift) diagmem_saturated_##shift##_s8(diagmem_high_product(x, m))

static inline int32_t diagmem_times_256(int32_t x) {
    return (int32_t)((uint32_t)x << 8);
}

static inline int32_t diagmem_plus_256_times(int32_t start, int32_t x) {
    return (int32_t)((uint32_t)start + ((uint32_t)x << 8));
}

static inline int32_t diagmem_minus(int32_t x, int32_t y) {
    return (int32_t)((uint32_t)x - (uint32_t)y);
}

#endif
