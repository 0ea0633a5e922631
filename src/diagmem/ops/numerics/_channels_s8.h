/* Sums of 8-bit products to stored outputs, signed or not, with a bias and a multiplier for each output channel. */
#ifndef DIAGMEM_CHANNELS_S8_H
#define DIAGMEM_CHANNELS_S8_H

#include "_fixed_point.h"

typedef struct {
    const int32_t *bias; /* less the input's zero point times the sum of the channel's weights */
    const int32_t *mantissa;
    const int8_t *shift;
    int32_t zero_point;
    int32_t low; /* the range that the activation leaves */
    int32_t high;
    int32_t is_plain; /* all multipliers are below a quarter, and the range is that of the type */
} diagmem_channels_s8;

/* The channels from `first` on. */
static inline diagmem_channels_s8 diagmem_channels_from(const diagmem_channels_s8 *all, int32_t first) {
    diagmem_channels_s8 some = *all;
    some.bias += first;
    some.mantissa += first;
    some.shift += first;
    return some;
}

/* `sum` includes the bias. */
static inline int8_t diagmem_plain_s8(const diagmem_channels_s8 *to, int32_t channel, int32_t sum) {
    int32_t value = diagmem_rescale_down(sum, to->mantissa[channel], to->shift[channel]) + (to->zero_point + 128);
    value = value < 0 ? 0 : value;
    value = value > 255 ? 255 : value;
    return (int8_t)(value - 128);
}

static inline int8_t diagmem_general_s8(const diagmem_channels_s8 *to, int32_t channel, int32_t sum) {
#ifdef DIAGMEM_TO_EVEN
    if (diagmem_is_single(to->mantissa[channel])) {
        const int32_t low = to->low - to->zero_point, high = to->high - to->zero_point;
        const int32_t scaled = diagmem_scaled_to_even(sum, to->mantissa[channel], to->shift[channel], low, high);
        return (int8_t)(scaled + to->zero_point);
    }
#endif
    const int32_t scaled = diagmem_rescale(sum, to->mantissa[channel], to->shift[channel]);
    return (int8_t)diagmem_clamp(diagmem_wrapping_add(scaled, to->zero_point), to->low, to->high);
}

static inline uint8_t diagmem_general_u8(const diagmem_channels_s8 *to, int32_t channel, int32_t sum) {
    const int32_t scaled = diagmem_rescale(sum, to->mantissa[channel], to->shift[channel]);
    return (uint8_t)diagmem_clamp(diagmem_wrapping_add(scaled, to->zero_point), to->low, to->high);
}

#endif
