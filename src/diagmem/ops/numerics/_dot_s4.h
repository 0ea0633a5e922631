/* Dot products of 8-bit inputs with 4-bit weights, two in a byte, of a block of output channels: each input is loaded
 * once for all. Weights of a block are interleaved, [input][channel], and those of an input fill whole bytes. */
#ifndef DIAGMEM_DOT_S4_H
#define DIAGMEM_DOT_S4_H

#include <stdint.h>

#include "_channels_s8.h"
#include "_runs.h"

#define DIAGMEM_BLOCK_S4 8

/* Number `i` of a row of 4-bit numbers, the first in the lower half of a byte. */
static inline int32_t diagmem_weight_s4(const uint8_t *packed, int32_t i) {
    const int32_t half = packed[i >> 1] >> (i & 1 ? 4 : 0) & 15;
    return (half ^ 8) - 8;
}

/* Adds the products of all runs to the sums of a block of at most DIAGMEM_BLOCK_S4 channels. */
static inline void diagmem_add_block_s4(const diagmem_run *runs, int32_t count, const uint8_t *weights,
                                        int32_t channels, int32_t *sums) {
    const int32_t bytes = (channels + 1) / 2;
    for (int32_t r = 0; r < count; ++r) {
        const int8_t *const x = runs[r].at;
        for (int32_t k = 0; k < runs[r].count; ++k, weights += bytes) {
            for (int32_t i = 0; i < channels; ++i) {
                sums[i] = diagmem_wrapping_add(sums[i], x[k] * diagmem_weight_s4(weights, i));
            }
        }
    }
}

/* `channels` outputs of a pixel from channel `first` on, block by block: all runs are read, then the block is written.
 * `size`: weights of a channel. */
static inline void diagmem_put_channels_s4(const diagmem_run *runs, int32_t count, const uint8_t *weights, int32_t size,
                                           const diagmem_channels_s8 *to, int32_t first, int32_t channels,
                                           int8_t *out) {
    for (const int32_t end = first + channels; first < end; first += DIAGMEM_BLOCK_S4) {
        const int32_t together = end - first < DIAGMEM_BLOCK_S4 ? end - first : DIAGMEM_BLOCK_S4;
        const diagmem_channels_s8 block = diagmem_channels_from(to, first);
        int32_t sums[DIAGMEM_BLOCK_S4] = {0};
        diagmem_add_block_s4(runs, count, weights, together, sums);
        for (int32_t i = 0; i < together; ++i) {
            out[first + i] = diagmem_general_s8(&block, i, sums[i]);
        }
        weights += (together + 1) / 2 * size;
    }
}

#endif
