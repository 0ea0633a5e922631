/* Sums of products of 16-bit inputs with 8-bit weights to stored outputs, with a bias and a multiplier for each output
 * channel. */
#ifndef DIAGMEM_CHANNELS_S16_H
#define DIAGMEM_CHANNELS_S16_H

#include "_fixed_point.h"

typedef struct {
    const int64_t *bias;
    const int32_t *mantissa; /* in [2^30, 2^31), or in [2^14, 2^15) where sums are wide; or 0 */
    const int8_t *shift;
    int32_t low; /* the range that the activation leaves */
    int32_t high;
    int32_t is_wide; /* sums need more than 32 bits */
} diagmem_channels_s16;

/* x times mantissa * 2^(shift - 15), halves upwards, of which 32 bits remain. */
static inline int32_t diagmem_rescale_wide(int64_t x, int32_t mantissa, int32_t shift) {
    const int32_t right = 15 - shift;
    return (int32_t)((x * mantissa + ((int64_t)1 << (right - 1))) >> right);
}

/* `sum` does not include the bias. */
static inline int16_t diagmem_finish_s16(const diagmem_channels_s16 *to, int32_t channel, int64_t sum) {
    const int64_t whole = sum + to->bias[channel];
    const int32_t scaled = to->is_wide ? diagmem_rescale_wide(whole, to->mantissa[channel], to->shift[channel])
                                       : diagmem_rescale((int32_t)whole, to->mantissa[channel], to->shift[channel]);
    return (int16_t)diagmem_clamp(scaled, to->low, to->high);
}

#endif
