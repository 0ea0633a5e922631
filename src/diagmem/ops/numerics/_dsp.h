/* Instructions of Arm's DSP extension, on two 16-bit numbers in a word, and what they mean in plain C.
 *
 * A word holds the byte of the lowest address in its lowest bits. Right shifts of negative numbers are taken to be
 * arithmetic. */
#ifndef DIAGMEM_DSP_H
#define DIAGMEM_DSP_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error these kernels are for little-endian machines
#endif

#if defined(__GNUC__)
#define DIAGMEM_APART __attribute__((noinline, unused))
typedef uint32_t __attribute__((may_alias)) diagmem_word;
typedef uint64_t __attribute__((may_alias)) diagmem_words;
/* Keeps the compiler from counting with another variable in the place of this one. */
#define DIAGMEM_KEEP(variable) __asm__("" : "+r"(variable))
#else
#define DIAGMEM_APART
typedef uint32_t diagmem_word;
typedef uint64_t diagmem_words;
#define DIAGMEM_KEEP(variable) ((void)0)
#endif

/* GCC moves instructions before it knows how many registers there are, and then has to put sums on the stack. What
 * calls the functions below stands between these two, else they are not inlined. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__arm__)
#define DIAGMEM_IN_ORDER _Pragma("GCC push_options") _Pragma("GCC optimize(\"no-schedule-insns\")")
#define DIAGMEM_IN_ANY_ORDER _Pragma("GCC pop_options")
#else
#define DIAGMEM_IN_ORDER
#define DIAGMEM_IN_ANY_ORDER
#endif

DIAGMEM_IN_ORDER

static inline uint32_t diagmem_load(const void *from) {
    uint32_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

static inline uint32_t diagmem_low(uint64_t words) {
    return (uint32_t)words;
}

static inline uint32_t diagmem_high(uint64_t words) {
    return (uint32_t)(words >> 32);
}

#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__)

#include <arm_acle.h>

/* The bytes 0 and 2 of a word as 16-bit numbers. */
static inline uint32_t diagmem_even(uint32_t x) {
    uint32_t pair;
    __asm__("sxtb16 %0, %1" : "=r"(pair) : "r"(x));
    return pair;
}

/* Its bytes 1 and 3. */
static inline uint32_t diagmem_odd(uint32_t x) {
    uint32_t pair;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(x));
    return pair;
}

/* The lower halves of two words, and their upper ones. */
static inline uint32_t diagmem_lower_halves(uint32_t low, uint32_t high) {
    uint32_t pair;
    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(pair) : "r"(low), "r"(high));
    return pair;
}

static inline uint32_t diagmem_upper_halves(uint32_t low, uint32_t high) {
    uint32_t pair;
    __asm__("pkhtb %0, %1, %2, asr #16" : "=r"(pair) : "r"(high), "r"(low));
    return pair;
}

/* A sum and both products of two pairs. */
static inline int32_t diagmem_both(int32_t sum, uint32_t x, uint32_t y) {
    __asm__("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(x), "r"(y));
    return sum;
}

/* A sum and the product of the lower numbers, or of the upper ones. */
static inline int32_t diagmem_lower(int32_t sum, uint32_t x, uint32_t y) {
    return __smlabb((int32_t)x, (int32_t)y, sum);
}

static inline int32_t diagmem_upper(int32_t sum, uint32_t x, uint32_t y) {
    return __smlatt((int32_t)x, (int32_t)y, sum);
}

/* A sum and a * b / 2^32, rounded down. */
static inline int32_t diagmem_add_high(int32_t sum, int32_t a, int32_t b) {
    int32_t result;
    __asm__("smmla %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
}

/* a * b / 2^32, rounded down. */
static inline int32_t diagmem_high_product(int32_t a, int32_t b) {
    int32_t result;
    __asm__("smmul %0, %1, %2" : "=r"(result) : "r"(a), "r"(b));
    return result;
}

/* A sum and a * b / 2^32 to the nearest integer, halves upwards. */
static inline int32_t diagmem_add_nearest(int32_t sum, int32_t a, int32_t b) {
    int32_t result;
    __asm__("smmlar %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
}

/* To two 16-bit numbers each, the bytes 0 and 2 of a word, or its bytes 1 and 3. */
static inline uint32_t diagmem_add_even(uint32_t sums, uint32_t x) {
    __asm__("sxtab16 %0, %0, %1" : "+r"(sums) : "r"(x));
    return sums;
}

static inline uint32_t diagmem_add_odd(uint32_t sums, uint32_t x) {
    __asm__("sxtab16 %0, %0, %1, ror #8" : "+r"(sums) : "r"(x));
    return sums;
}

/* Of four bytes each the larger one. */
static inline uint32_t diagmem_larger(uint32_t x, uint32_t y) {
    uint32_t unused;
    __asm__("ssub8 %1, %0, %2\n\tsel %0, %0, %2" : "+r"(x), "=&r"(unused) : "r"(y));
    return x;
}

/* Two words, and on to the next two. */
#define DIAGMEM_TAKE(low, high, from)                                                                                  \
    __asm__("ldrd %0, %1, [%2], #8" : "=&r"(low), "=&r"(high), "+r"(from) : : "memory")

static inline int8_t diagmem_saturated_s8(int32_t x) {
    int32_t result;
    __asm__("ssat %0, #8, %1" : "=r"(result) : "r"(x));
    return (int8_t)result;
}

/* Defines diagmem_saturated_`shift`_s8: the same, after a shift to the right. */
#define DIAGMEM_SATURATED_AFTER(shift)                                              \
    static inline int8_t diagmem_saturated_##shift##_s8(int32_t x) {                \
        int32_t result;                                                             \
        __asm__("ssat %0, #8, %1, asr #" #shift : "=r"(result) : "r"(x));           \
        return (int8_t)result;                                                      \
    }

#else

static inline uint32_t diagmem_lower_halves(uint32_t low, uint32_t high) {
    return (low & 0xffffu) | (high << 16);
}

static inline uint32_t diagmem_upper_halves(uint32_t low, uint32_t high) {
    return (low >> 16) | (high & 0xffff0000u);
}

static inline uint32_t diagmem_even(uint32_t x) {
    return diagmem_lower_halves((uint32_t)(int8_t)x, (uint32_t)(int8_t)(x >> 16));
}

static inline uint32_t diagmem_odd(uint32_t x) {
    return diagmem_even(x >> 8);
}

static inline int32_t diagmem_lower(int32_t sum, uint32_t x, uint32_t y) {
    return (int32_t)((uint32_t)sum + (uint32_t)((int16_t)x * (int16_t)y));
}

static inline int32_t diagmem_upper(int32_t sum, uint32_t x, uint32_t y) {
    return diagmem_lower(sum, x >> 16, y >> 16);
}

static inline int32_t diagmem_both(int32_t sum, uint32_t x, uint32_t y) {
    return diagmem_upper(diagmem_lower(sum, x, y), x, y);
}

static inline int32_t diagmem_add_high(int32_t sum, int32_t a, int32_t b) {
    return sum + (int32_t)(((int64_t)a * b) >> 32);
}

static inline int32_t diagmem_high_product(int32_t a, int32_t b) {
    return (int32_t)(((int64_t)a * b) >> 32);
}

static inline int32_t diagmem_add_nearest(int32_t sum, int32_t a, int32_t b) {
    return sum + (int32_t)(((int64_t)a * b + 0x80000000) >> 32);
}

static inline uint32_t diagmem_add_even(uint32_t sums, uint32_t x) {
    const uint32_t pair = diagmem_even(x);
    return diagmem_lower_halves(sums + pair, (sums >> 16) + (pair >> 16));
}

static inline uint32_t diagmem_add_odd(uint32_t sums, uint32_t x) {
    return diagmem_add_even(sums, x >> 8);
}

static inline uint32_t diagmem_larger(uint32_t x, uint32_t y) {
    uint32_t result = 0;
    for (uint32_t mask = 0xffu; mask != 0; mask <<= 8) {
        result |= ((x ^ 0x80808080u) & mask) > ((y ^ 0x80808080u) & mask) ? x & mask : y & mask;
    }
    return result;
}

#define DIAGMEM_TAKE(low, high, from)               \
    do {                                            \
        const uint64_t taken = *(from)++;           \
        (low) = diagmem_low(taken);                 \
        (high) = diagmem_high(taken);               \
    } while (0)

static inline int8_t diagmem_saturated_s8(int32_t x) {
    return (int8_t)(x < -128 ? -128 : x > 127 ? 127 : x);
}

#define DIAGMEM_SATURATED_AFTER(shift)                                              \
    static inline int8_t diagmem_saturated_##shift##_s8(int32_t x) {                \
        return diagmem_saturated_s8(x >> (shift));                                  \
    }

#endif

DIAGMEM_SATURATED_AFTER(8)
DIAGMEM_SATURATED_AFTER(10)
DIAGMEM_SATURATED_AFTER(12)
DIAGMEM_SATURATED_AFTER(14)

DIAGMEM_IN_ANY_ORDER

#endif
