/* TensorFlow Lite's integer arithmetic, exact to the bit: the C twin of fixed_point.py.
 *
 * A real multiplier is mantissa * 2^(shift - 31), the mantissa in [2^30, 2^31) or 0. Right shifts of negative numbers
 * are taken to be arithmetic, as on every compiler for micro-controllers. */
#ifndef DIAGMEM_FIXED_POINT_H
#define DIAGMEM_FIXED_POINT_H

#include <stdint.h>

#ifdef DIAGMEM_TO_EVEN
#include "_to_even.h"
#endif

/* How products with multipliers become integers. */
enum {
    DIAGMEM_ROUNDED_TWICE,      /* as TensorFlow Lite does it */
    DIAGMEM_ROUNDED_TWICE_DOWN, /* the same where all multipliers are below a quarter, and ranges those of the type */
    DIAGMEM_ROUNDED_TO_EVEN     /* once, halves to even, as in onnxruntime: a mantissa holds the bits of a single */
};

/* From 32-bit numbers to stored values of an output. */
typedef struct {
    int32_t mantissa;
    int32_t shift;
    int32_t zero_point;
    int32_t low; /* the range that the activation leaves */
    int32_t high;
#ifdef DIAGMEM_TO_EVEN
    int32_t rounding;
#endif
} diagmem_requantisation;

static inline int32_t diagmem_clamp(int32_t x, int32_t low, int32_t high) {
    return x < low ? low : x > high ? high : x;
}

/* Sum, difference, product and left shift in a register of 32 bits, which wraps around: odd scales and zero points may
 * ask for that. */
static inline int32_t diagmem_wrapping_add(int32_t a, int32_t b) {
    return (int32_t)((uint32_t)a + (uint32_t)b);
}

static inline int32_t diagmem_wrapping_sub(int32_t a, int32_t b) {
    return (int32_t)((uint32_t)a - (uint32_t)b);
}

static inline int32_t diagmem_wrapping_mul(int32_t a, int32_t b) {
    return (int32_t)((uint32_t)a * (uint32_t)b);
}

static inline int32_t diagmem_wrapping_shift(int32_t x, int32_t exponent) {
    return (int32_t)((uint32_t)x << exponent);
}

/* Cores that multiply to 32 bits only would call a function for 64. */
#ifndef DIAGMEM_SHORT_PRODUCTS
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
#define DIAGMEM_SHORT_PRODUCTS 1
#else
#define DIAGMEM_SHORT_PRODUCTS 0
#endif
#endif

/* a * b / 2^31, halves upwards. */
static inline int32_t diagmem_high_mul(int32_t a, int32_t b) {
#if DIAGMEM_SHORT_PRODUCTS
    /* Of halves: a_low * b_high and a_high * b_low fit into 32 bits with a sign, and what is added to them as well. */
    const int32_t a_low = (int32_t)((uint32_t)a & 0xffffu), b_low = (int32_t)((uint32_t)b & 0xffffu);
    const int32_t a_high = a >> 16, b_high = b >> 16;
    const int32_t first = a_low * b_high + (int32_t)(((uint32_t)a_low * (uint32_t)b_low) >> 16);
    const int32_t second = a_high * b_low + (int32_t)((uint32_t)first & 0xffffu);
    const uint32_t low = (uint32_t)a * (uint32_t)b + (1u << 30);
    const int32_t high = a_high * b_high + (first >> 16) + (second >> 16) + (low < (1u << 30));
    return (int32_t)(((uint32_t)high << 1) | (low >> 31));
#else
    return (int32_t)(((int64_t)a * b + (1 << 30)) >> 31);
#endif
}

/* a * b / 2^32, rounded down; b is not negative. */
static inline int32_t diagmem_upper_product(int32_t a, int32_t b) {
#if DIAGMEM_SHORT_PRODUCTS
    const uint32_t a_low = (uint32_t)a & 0xffffu, b_low = (uint32_t)b & 0xffffu;
    const int32_t a_high = a >> 16, b_high = b >> 16;
    const uint32_t first = a_low * (uint32_t)b_high + ((a_low * b_low) >> 16);
    const int32_t second = a_high * (int32_t)b_low + (int32_t)(first & 0xffffu);
    return a_high * b_high + (int32_t)(first >> 16) + (second >> 16);
#else
    return (int32_t)(((int64_t)a * b) >> 32);
#endif
}

/* x / 2^exponent, halves away from zero. */
static inline int32_t diagmem_rounding_shift(int32_t x, int32_t exponent) {
    const int32_t mask = (int32_t)((1u << exponent) - 1u);
    const int32_t threshold = (mask >> 1) + (x < 0);
    return (x >> exponent) + ((x & mask) > threshold);
}

/* x times a real multiplier of at least a quarter, rounded twice. */
static inline int32_t diagmem_rescale_up(int32_t x, int32_t mantissa, int32_t shift) {
    const int32_t left = shift > 0 ? shift : 0;
    const int32_t product = diagmem_high_mul(diagmem_wrapping_shift(x, left), mantissa);
    return shift < 0 ? (product + 1 + (product >> 31)) >> 1 : product;
}

/* x times a real multiplier of less than a quarter, rounded twice: both roundings are one addition before one shift.
 * With e = -shift it is
 *     (x * mantissa + 2^30 + 2^(30 + e) - (x < 0 ? 2^31 : 0)) >> (31 + e),
 * whose addend is put together from two words. */
static inline int32_t diagmem_rescale_down(int32_t x, int32_t mantissa, int32_t shift) {
    const int32_t right = -1 - shift;
    const int32_t high = (int32_t)((1u << right) >> 1) + (x >> 31);
#if DIAGMEM_SHORT_PRODUCTS
    const int32_t x_low = (int32_t)((uint32_t)x & 0xffffu), m_low = (int32_t)((uint32_t)mantissa & 0xffffu);
    const int32_t x_high = x >> 16, m_high = mantissa >> 16;
    const uint32_t low = 0x4000u + ((uint32_t)(x >> 31) & 0x8000u);
    const uint32_t first = (uint32_t)x_low * (uint32_t)m_high + (((uint32_t)x_low * (uint32_t)m_low) >> 16) + low;
    const int32_t second = x_high * m_low + (int32_t)(first & 0xffffu);
    return (x_high * m_high + (int32_t)(first >> 16) + (second >> 16) + high) >> right;
#else
    const uint32_t low = ((uint32_t)x & 0x80000000u) | 0x40000000u;
    const int64_t addend = (int64_t)(((uint64_t)(uint32_t)high << 32) | low);
    return (int32_t)(((int64_t)x * mantissa + addend) >> 32) >> right;
#endif
}

/* x times a real multiplier, rounded to 31 fractional bits, halves upwards, and then to an integer, halves away from
 * zero. */
static inline int32_t diagmem_rescale(int32_t x, int32_t mantissa, int32_t shift) {
    return shift > -2 ? diagmem_rescale_up(x, mantissa, shift) : diagmem_rescale_down(x, mantissa, shift);
}

static inline int32_t diagmem_requantise(const diagmem_requantisation *to, int32_t x) {
#ifdef DIAGMEM_TO_EVEN
    if (to->rounding == DIAGMEM_ROUNDED_TO_EVEN) {
        const int32_t low = to->low - to->zero_point, high = to->high - to->zero_point;
        return diagmem_scaled_to_even(x, to->mantissa, low, high) + to->zero_point;
    }
#endif
    const int32_t scaled = diagmem_rescale(x, to->mantissa, to->shift);
    return diagmem_clamp(diagmem_wrapping_add(scaled, to->zero_point), to->low, to->high);
}

#endif
