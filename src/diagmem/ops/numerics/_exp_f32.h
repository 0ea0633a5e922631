/* exp() in single precision, the same bits on every machine: the C twin of single_precision.py. */
#ifndef DIAGMEM_EXP_F32_H
#define DIAGMEM_EXP_F32_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float diagmem_power_of_two(int32_t exponent) {
    const uint32_t bits = (uint32_t)(exponent + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* exp(x) - 1, |x| <= ln(2) / 2. */
static inline float diagmem_exp_series_f32(float x) {
    float total = 1.9875691e-4f;
    total = total * x + 1.3981999e-3f;
    total = total * x + 8.3334519e-3f;
    total = total * x + 4.1665796e-2f;
    total = total * x + 1.6666665e-1f;
    total = total * x + 5.0000001e-1f;
    return total * (x * x) + x;
}

/* exp(x) within 2 units in the last place; 0 where it would be less than the least normal number. */
static inline float diagmem_exp_f32(float x) {
    if (x > 88.72283f) {
        return HUGE_VALF;
    }
    if (x < -87.33654f) {
        return 0.0f;
    }
    const float turns = x * 1.44269504f;
    const int32_t whole = (int32_t)(turns + (turns < 0.0f ? -0.5f : 0.5f));
    const int32_t half = whole >> 1;
    float rest = x - (float)whole * 0.693359375f;
    rest = rest - (float)whole * -2.12194440e-4f;
    const float total = diagmem_exp_series_f32(rest) + 1.0f;
    return total * diagmem_power_of_two(half) * diagmem_power_of_two(whole - half);
}

#endif
