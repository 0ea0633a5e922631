/* Products in single precision, rounded once, halves to even, by integers alone: the same on cores that have no real
 * numbers. A multiplier is mantissa * 2^-shift, its mantissa in [2^23, 2^24) or 0. */
#ifndef DIAGMEM_TO_EVEN_H
#define DIAGMEM_TO_EVEN_H

#include <stdint.h>

/* Mantissas of 31 bits are rounded twice, as TensorFlow Lite does it, those of 24 once. */
static inline int32_t diagmem_is_single(int32_t mantissa) {
    return mantissa < (1 << 24);
}

/* x / 2^bits, halves to even; bits in [1, 63). */
static inline uint64_t diagmem_halves_to_even(uint64_t x, int32_t bits) {
    const uint64_t odd = (x >> bits) & 1u;
    return (x + ((uint64_t)1 << (bits - 1)) - 1u + odd) >> bits;
}

/* How many bits of x are above its lowest 24. */
static inline int32_t diagmem_bits_above_24(uint64_t x) {
    int32_t bits = 0;
    for (x >>= 24; x != 0; x >>= 1) {
        ++bits;
    }
    return bits;
}

/* x as a single, times the multiplier as a single, to the nearest integer, as a processor for real numbers would. Such
 * a large one that no output can hold it is only known to be large. */
static inline int32_t diagmem_single_product(int32_t x, int32_t mantissa, int32_t shift) {
    uint64_t size = x < 0 ? 0u - (uint32_t)x : (uint32_t)x;
    int32_t bits = diagmem_bits_above_24(size);
    if (bits > 0) {
        size = diagmem_halves_to_even(size, bits);
        shift -= bits;
    }
    size *= (uint32_t)mantissa;
    bits = diagmem_bits_above_24(size);
    if (bits > 0) {
        size = diagmem_halves_to_even(size, bits);
        shift -= bits;
    }
    size = shift <= 0 ? size : shift > 26 ? 0 : diagmem_halves_to_even(size, shift);
    return x < 0 ? -(int32_t)size : (int32_t)size;
}

/* The product, rounded, in [low, high], which are within 512 of 0. Twenty bits behind the point tell how to round it,
 * but where singles might have been rounded to a half. */
static inline int32_t diagmem_scaled_to_even(int32_t x, int32_t mantissa, int32_t shift, int32_t low, int32_t high) {
    int32_t value;
    if (shift >= 24) {
        const int64_t fine = (int64_t)x * mantissa >> (shift - 20);
        if (fine <= (int64_t)(low - 1) * (1 << 20)) {
            return low;
        }
        if (fine >= (int64_t)(high + 1) * (1 << 20)) {
            return high;
        }
        const int32_t rest = (int32_t)(fine & 0xFFFFF) - 0x80000;
        value = rest > -128 && rest < 128 ? diagmem_single_product(x, mantissa, shift)
                                          : (int32_t)((fine + 0x80000) >> 20);
    } else {
        value = diagmem_single_product(x, mantissa, shift);
    }
    return value < low ? low : value > high ? high : value;
}

#endif
