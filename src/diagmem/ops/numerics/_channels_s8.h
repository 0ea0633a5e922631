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
    int32_t rounding;
} diagmem_channels_s8;

/* The channels from `first` on. */
static inline diagmem_channels_s8 diagmem_channels_from(const diagmem_channels_s8 *all, int32_t first) {
    diagmem_channels_s8 some = *all;
    some.bias += first;
    some.mantissa += first;
    some.shift += first;
    return some;
}

/* Whether diagmem_quick_s8 does. */
static inline int diagmem_is_quick(const diagmem_channels_s8 *to) {
    return to->rounding != DIAGMEM_ROUNDED_TWICE;
}

#ifdef DIAGMEM_TO_EVEN
/* Most channels have a line that gives the same outputs, where 256 times the sum starts from `bias`; others, with a
 * negative shift, are rounded. */
static inline int8_t diagmem_to_even_s8(const diagmem_channels_s8 *to, int32_t channel, int32_t sum) {
    const int32_t mantissa = to->mantissa[channel], bias = to->bias[channel], shift = to->shift[channel];
    if (shift >= 0) {
        const int32_t x = diagmem_wrapping_add(diagmem_wrapping_shift(sum, 8), bias);
        return (int8_t)diagmem_clamp(diagmem_upper_product(x, mantissa) >> shift, to->low, to->high);
    }
    const int32_t low = to->low - to->zero_point, high = to->high - to->zero_point;
    return (int8_t)(diagmem_scaled_to_even(diagmem_wrapping_add(sum, bias), mantissa, low, high) + to->zero_point);
}
#endif

/* `sum` is without the bias. */
static inline int8_t diagmem_quick_s8(const diagmem_channels_s8 *to, int32_t channel, int32_t sum) {
#ifdef DIAGMEM_TO_EVEN
    if (to->rounding == DIAGMEM_ROUNDED_TO_EVEN) {
        return diagmem_to_even_s8(to, channel, sum);
    }
#endif
    sum = diagmem_wrapping_add(sum, to->bias[channel]);
    int32_t value = diagmem_rescale_down(sum, to->mantissa[channel], to->shift[channel]) + (to->zero_point + 128);
    value = value < 0 ? 0 : value;
    value = value > 255 ? 255 : value;
    return (int8_t)(value - 128);
}

/* `sum` is without the bias. */
static inline int8_t diagmem_general_s8(const diagmem_channels_s8 *to, int32_t channel, int32_t sum) {
#ifdef DIAGMEM_TO_EVEN
    if (to->rounding == DIAGMEM_ROUNDED_TO_EVEN) {
        return diagmem_to_even_s8(to, channel, sum);
    }
#endif
    sum = diagmem_wrapping_add(sum, to->bias[channel]);
    const int32_t scaled = diagmem_rescale(sum, to->mantissa[channel], to->shift[channel]);
    return (int8_t)diagmem_clamp(diagmem_wrapping_add(scaled, to->zero_point), to->low, to->high);
}

/* `sum` includes the bias. */
static inline uint8_t diagmem_general_u8(const diagmem_channels_s8 *to, int32_t channel, int32_t sum) {
    const int32_t scaled = diagmem_rescale(sum, to->mantissa[channel], to->shift[channel]);
    return (uint8_t)diagmem_clamp(diagmem_wrapping_add(scaled, to->zero_point), to->low, to->high);
}

#endif
