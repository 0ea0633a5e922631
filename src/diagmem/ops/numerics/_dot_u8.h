/* Dot products of unsigned 8-bit inputs with the weights of a block of output channels: each input is loaded once for
 * all.
 *
 * Weights of a block are interleaved as in `_dot_s8.h`. They have a zero point z, so the sum of x * (w - z) is that of
 * x * w less z times the sum of the inputs, which is the same for all channels. */
#ifndef DIAGMEM_DOT_U8_H
#define DIAGMEM_DOT_U8_H

#include <stdint.h>

#include "_rounded_once.h"
#include "_runs.h"

#define DIAGMEM_BLOCK_U8 8

/* The weights of a layer, their zero point, and what its sums are multiplied with; 0: with the multiplier of each
 * channel. */
typedef struct {
    const int8_t *weights;
    int32_t zero_point;
    double scale;
} diagmem_filter_u8;

/* Reads all runs, then writes a block of at most DIAGMEM_BLOCK_U8 channels. */
static inline void diagmem_put_block_u8(const diagmem_run *runs, int32_t count, const diagmem_filter_u8 *filter,
                                        const diagmem_channels_s8 *to, int32_t channels, uint8_t *out) {
    const int8_t *weights = filter->weights;
    int32_t sums[DIAGMEM_BLOCK_U8];
    int32_t inputs = 0;
    for (int32_t i = 0; i < channels; ++i) {
        sums[i] = to->bias[i];
    }
    for (const diagmem_run *const end = runs + count; runs != end; ++runs) {
        const uint8_t *const x = runs->at;
        for (int32_t k = 0; k < runs->count; ++k, weights += channels) {
            const int32_t value = x[k];
            inputs += value;
            if (channels == DIAGMEM_BLOCK_U8) {
                for (int32_t i = 0; i < DIAGMEM_BLOCK_U8; ++i) {
                    sums[i] = diagmem_wrapping_add(sums[i], value * weights[i]);
                }
            } else {
                for (int32_t i = 0; i < channels; ++i) {
                    sums[i] = diagmem_wrapping_add(sums[i], value * weights[i]);
                }
            }
        }
    }
    for (int32_t i = 0; i < channels; ++i) {
        const int32_t sum = diagmem_wrapping_sub(sums[i], filter->zero_point * inputs);
        out[i] = filter->scale > 0.0 ? (uint8_t)diagmem_rounded_once(to, sum, filter->scale)
                                     : diagmem_general_u8(to, i, sum);
    }
}

/* `channels` outputs of a pixel from channel `first` on, block by block. `size`: weights of a channel. */
static inline void diagmem_put_channels_u8(const diagmem_run *runs, int32_t count, diagmem_filter_u8 filter,
                                           int32_t size, const diagmem_channels_s8 *to, int32_t first,
                                           int32_t channels, uint8_t *out) {
    for (const int32_t end = first + channels; first < end; first += DIAGMEM_BLOCK_U8) {
        const int32_t together = end - first < DIAGMEM_BLOCK_U8 ? end - first : DIAGMEM_BLOCK_U8;
        const diagmem_channels_s8 block = diagmem_channels_from(to, first);
        diagmem_put_block_u8(runs, count, &filter, &block, together, out + first);
        filter.weights += together * size;
    }
}

#endif
