/* L2_NORMALIZATION. For each row: its elements are read once, then each is read and written in turn. */
#include "../numerics/_fixed_exp.h"

#include <math.h>

typedef struct {
    int32_t rows;
    int32_t size;
    int32_t zero_point; /* of the input, 0 for real numbers */
} diagmem_l2_normalization_params;

/* 1 / sqrt(x) = mantissa * 2^(shift - 31). */
typedef struct {
    int32_t mantissa;
    int32_t shift;
} diagmem_root;

/* For x >= 0, of which 0 and 1 give 1: five steps of Newton's method from 1, 28 fractional bits. */
static inline diagmem_root diagmem_inverse_sqrt(int32_t x) {
    diagmem_root root = {INT32_MAX, 0};
    if (x <= 1) {
        return root;
    }
    root.shift = -11;
    while (x >= (1 << 29)) {
        x /= 4;
        --root.shift;
    }
    const int32_t pairs = (diagmem_leading_zeros((uint32_t)x) - 1) / 2 - 1;
    x <<= 2 * pairs;
    root.shift += pairs;
    const int32_t half = diagmem_rounding_shift(x >> 1, 1);
    int32_t estimate = 1 << 28;
    for (int32_t i = 0; i < 5; ++i) {
        const int32_t square = diagmem_high_mul(estimate, estimate);
        const int32_t cube = diagmem_saturating_shift(diagmem_high_mul(square, estimate), 6);
        const int32_t next = diagmem_high_mul((1 << 28) + (1 << 27), estimate) - diagmem_high_mul(half, cube);
        estimate = diagmem_saturating_shift(next, 3);
    }
    root.mantissa = diagmem_high_mul(estimate, 1518500250);
    if (root.shift > 0) {
        root.mantissa *= 1 << root.shift;
        root.shift = 0;
    }
    return root;
}

/* Defines the kernel `name` for a type in whose middle stands `middle`. Of the 7 bits behind the point, numbers get
 * `before` before they are multiplied. */
#define DIAGMEM_L2_NORMALIZATION(name, type, middle, before)                                            \
    static inline void name(const diagmem_l2_normalization_params *p, const type *in, type *out) {      \
        for (int32_t row = 0; row < p->rows; ++row, in += p->size, out += p->size) {                    \
            int32_t sum = 0;                                                                            \
            for (int32_t c = 0; c < p->size; ++c) {                                                     \
                const int32_t value = in[c] - p->zero_point;                                            \
                sum += value * value;                                                                   \
            }                                                                                           \
            const diagmem_root root = diagmem_inverse_sqrt(sum);                                        \
            for (int32_t c = 0; c < p->size; ++c) {                                                     \
                const int32_t number = (in[c] - p->zero_point) * (1 << before);                         \
                const int32_t value = diagmem_rescale(number, root.mantissa, root.shift + 7 - before);  \
                out[c] = (type)diagmem_clamp(value + middle, middle - 128, middle + 127);               \
            }                                                                                           \
        }                                                                                               \
    }

DIAGMEM_L2_NORMALIZATION(diagmem_l2_normalization_s8, int8_t, 0, 0)
DIAGMEM_L2_NORMALIZATION(diagmem_l2_normalization_u8, uint8_t, 128, 7)

static inline void diagmem_l2_normalization_f32(const diagmem_l2_normalization_params *p, const float *in, float *out) {
    for (int32_t row = 0; row < p->rows; ++row, in += p->size, out += p->size) {
        float sum = 0.0f;
        for (int32_t c = 0; c < p->size; ++c) {
            sum += in[c] * in[c];
        }
        const float length = sqrtf(sum);
        const float divisor = length > 1e-6f ? length : 1e-6f;
        for (int32_t c = 0; c < p->size; ++c) {
            out[c] = in[c] / divisor;
        }
    }
}
