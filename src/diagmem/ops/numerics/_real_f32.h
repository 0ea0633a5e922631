/* Functions in single precision, the same bits on every machine: the C twins of single_precision.py. */
#ifndef DIAGMEM_REAL_F32_H
#define DIAGMEM_REAL_F32_H

#include "_exp_f32.h"

/* exp(x) - 1, also exact to a few units where x is small. */
static inline float diagmem_expm1_f32(float x) {
    return x >= -0.34657359f && x <= 0.34657359f ? diagmem_exp_series_f32(x) : diagmem_exp_f32(x) - 1.0f;
}

static inline float diagmem_tanh_of_f32(float x) {
    const float size = x < 0.0f ? -x : x;
    const float grown = diagmem_expm1_f32((size < 10.0f ? size : 10.0f) * 2.0f);
    const float positive = grown / (grown + 2.0f);
    return x < 0.0f ? -positive : positive;
}

/* Where 1 + exp(-x) would lose x, TensorFlow Lite takes other ways; so does this. */
static inline float diagmem_logistic_of_f32(float x) {
    if (x > 16.619047f) {
        return 1.0f;
    }
    return x < -9.0f ? diagmem_exp_f32(x) : 1.0f / (1.0f + diagmem_exp_f32(-x));
}

/* The natural logarithm of a normal number above 0: twice the area tangent of (m - 1) / (m + 1), m near 1. */
static inline float diagmem_log_f32(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t exponent = (bits >> 23) - 127;
    bits = (bits & 0x7FFFFF) | 0x3F800000;
    float mantissa;
    memcpy(&mantissa, &bits, sizeof mantissa);
    if (mantissa > 1.41421356f) {
        mantissa *= 0.5f;
        ++exponent;
    }
    const float whole = (float)exponent;
    const float ratio = (mantissa - 1.0f) / (mantissa + 1.0f);
    const float square = ratio * ratio;
    float total = 0.11111111f;
    total = total * square + 0.14285715f;
    total = total * square + 0.2f;
    total = total * square + 0.33333334f;
    total = total * square + 1.0f;
    return whole * 0.693359375f + (ratio * 2.0f * total + whole * -2.12194440e-4f);
}

/* 1 - erf(x). For x >= 0 it is exp(-x * x) * t times a polynomial in t = 1 / (1 + 0.4 * x). */
static inline float diagmem_erfc_f32(float x) {
    const float size = x < 0.0f ? -x : x;
    const float t = 1.0f / (1.0f + 0.4f * size);
    float total = -0.028637955f;
    total = total * t + 0.19282793f;
    total = total * t + -0.4866425f;
    total = total * t + 0.5312449f;
    total = total * t + -0.2709379f;
    total = total * t + 0.26488146f;
    total = total * t + 0.1321539f;
    total = total * t + 0.21439126f;
    total = total * t + 0.22501521f;
    total = total * t + 0.22570367f;
    const float positive = diagmem_exp_f32(-(size * size)) * (t * total);
    return x < 0.0f ? 2.0f - positive : positive;
}

static inline float diagmem_gelu_of_f32(float x) {
    return 0.5f * x * diagmem_erfc_f32(x * -0.70710678f);
}

/* The usual approximation. */
static inline float diagmem_gelu_by_tanh_of_f32(float x) {
    const float inner = 0.79788456f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + diagmem_tanh_of_f32(inner));
}

#endif
