/* Dot products in single precision with the weights of a block of output channels: see _dot_s8.h. Each sum takes its
 * products one after the other, and the bias last. */
#ifndef DIAGMEM_DOT_F32_H
#define DIAGMEM_DOT_F32_H

#include "../_compiler.h"
#include "_real.h"
#include "_runs.h"

#define DIAGMEM_BLOCK 8

/* Adds a run's products to the sums of a block. */
static DIAGMEM_NOINLINE void diagmem_add_run_f32(const float *x, int32_t count, const float *w, float *sums) {
    float a = sums[0], b = sums[1], c = sums[2], d = sums[3], e = sums[4], f = sums[5], g = sums[6], h = sums[7];
    for (; count > 0; --count, w += DIAGMEM_BLOCK) {
        const float value = *x++;
        a += value * w[0];
        b += value * w[1];
        c += value * w[2];
        d += value * w[3];
        e += value * w[4];
        f += value * w[5];
        g += value * w[6];
        h += value * w[7];
    }
    sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d, sums[4] = e, sums[5] = f, sums[6] = g, sums[7] = h;
}

/* The same for a block of fewer channels. */
static inline void diagmem_add_rest_f32(const float *x, int32_t count, const float *w, int32_t channels, float *sums) {
    for (int32_t k = 0; k < count; ++k) {
        for (int32_t i = 0; i < channels; ++i) {
            sums[i] += x[k] * *w++;
        }
    }
}

/* `channels` outputs of a pixel from channel `first` on, block by block: all runs are read, then the block is written.
 * `size`: weights of a channel. */
static inline void diagmem_put_channels_f32(const diagmem_run *runs, int32_t count, const float *weights, int32_t size,
                                            const diagmem_channels_f32 *to, int32_t first, int32_t channels,
                                            float *out) {
    for (const int32_t end = first + channels; first < end; first += DIAGMEM_BLOCK, weights += DIAGMEM_BLOCK * size) {
        const int32_t together = end - first < DIAGMEM_BLOCK ? end - first : DIAGMEM_BLOCK;
        const float *w = weights;
        float sums[DIAGMEM_BLOCK] = {0};
        for (int32_t r = 0; r < count; w += together * runs[r++].count) {
            if (together == DIAGMEM_BLOCK) {
                diagmem_add_run_f32(runs[r].at, runs[r].count, w, sums);
            } else {
                diagmem_add_rest_f32(runs[r].at, runs[r].count, w, together, sums);
            }
        }
        for (int32_t i = 0; i < together; ++i) {
            out[first + i] = diagmem_clamp_f32(sums[i] + to->bias[first + i], to->low, to->high);
        }
    }
}

#endif
