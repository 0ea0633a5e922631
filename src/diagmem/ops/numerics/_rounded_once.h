/* Sums scaled in double precision and rounded once, halves away from zero, as LiteRT does it in dense layers that
 * TensorFlow Lite Micro does not have. */
#ifndef DIAGMEM_ROUNDED_ONCE_H
#define DIAGMEM_ROUNDED_ONCE_H

#include <math.h>

#include "_channels_s8.h"

static inline int32_t diagmem_rounded_once(const diagmem_channels_s8 *to, int32_t sum, double scale) {
    const double value = round((double)sum * scale) + (double)to->zero_point;
    return value < (double)to->low ? to->low : value > (double)to->high ? to->high : (int32_t)value;
}

#endif
