/* Products in single precision, rounded once, halves to even: by a floating-point unit, or with the same bits by
 * integers alone. A multiplier is given as the bits of a single, which is 0 or at least 2^-40. */
#ifndef DIAGMEM_TO_EVEN_H
#define DIAGMEM_TO_EVEN_H

#include <stdint.h>

#if defined(__GNUC__) && defined(__ARM_FP) && (__ARM_FP & 4)

#include <string.h>

/* The nearest integer, halves to even. */
static inline int32_t diagmem_nearest_even(float x) {
    int32_t value;
    __asm__("vcvtr.s32.f32 %0, %0" : "+t"(x));
    memcpy(&value, &x, sizeof value);
    return value;
}

/* The product, rounded, in [low, high]. */
static inline int32_t diagmem_scaled_to_even(int32_t x, int32_t single, int32_t low, int32_t high) {
    float factor;
    memcpy(&factor, &single, sizeof factor);
    const int32_t value = diagmem_nearest_even((float)x * factor);
    return value < low ? low : value > high ? high : value;
}

#else

/* The nearest integer, halves to even, of numbers that 32 bits hold. */
static inline int32_t diagmem_nearest_even(float x) {
    const int32_t whole = (int32_t)x;
    const float rest = x - (float)whole;
    if (rest == 0.5f || rest == -0.5f) {
        return whole + whole % 2;
    }
    return whole + (rest > 0.5f) - (rest < -0.5f);
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

/* x as a single, times mantissa * 2^-shift as a single, to the nearest integer. Such a large one that no output can
 * hold it is only known to be large. */
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
static inline int32_t diagmem_scaled_to_even(int32_t x, int32_t single, int32_t low, int32_t high) {
    const int32_t mantissa = single == 0 ? 0 : (single & 0x7FFFFF) | 0x800000;
    const int32_t shift = 150 - (single >> 23);
    int32_t value;
    if (shift >= 24 && shift < 64) {
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

#endif
