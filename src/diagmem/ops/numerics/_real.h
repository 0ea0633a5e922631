/* What kernels for single precision share. */
#ifndef DIAGMEM_REAL_H
#define DIAGMEM_REAL_H

#include <stdint.h>

typedef struct {
    const float *bias; /* one for each output channel */
    float low;         /* the range that the activation leaves */
    float high;
} diagmem_channels_f32;

static inline float diagmem_clamp_f32(float x, float low, float high) {
    return x < low ? low : x > high ? high : x;
}

#endif
