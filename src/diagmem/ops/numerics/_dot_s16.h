/* Dot products of 16-bit inputs with the 8-bit weights of a block of output channels: see _dot_s8.h. */
#ifndef DIAGMEM_DOT_S16_H
#define DIAGMEM_DOT_S16_H

#include "_channels_s16.h"
#include "_runs.h"

#define DIAGMEM_BLOCK_S16 8

/* `channels` outputs of a pixel from channel `first` on, block by block: all runs are read, then the block is written.
 * `size`: weights of a channel. */
static inline void diagmem_put_channels_s16(const diagmem_run *runs, int32_t count, const int8_t *weights, int32_t size,
                                            const diagmem_channels_s16 *to, int32_t first, int32_t channels,
                                            int16_t *out) {
    const int32_t block = DIAGMEM_BLOCK_S16;
    for (const int32_t end = first + channels; first < end; first += block, weights += block * size) {
        const int32_t together = end - first < block ? end - first : block;
        const int8_t *w = weights;
        int64_t sums[DIAGMEM_BLOCK_S16] = {0};
        for (int32_t r = 0; r < count; ++r) {
            const int16_t *const x = runs[r].at;
            for (int32_t k = 0; k < runs[r].count; ++k) {
                for (int32_t i = 0; i < together; ++i) {
                    sums[i] += x[k] * *w++;
                }
            }
        }
        for (int32_t i = 0; i < together; ++i) {
            out[first + i] = diagmem_finish_s16(to, first + i, sums[i]);
        }
    }
}

#endif
