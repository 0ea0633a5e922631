/* Dot products in single precision with weights of half precision: blocks as in _dot_s8.h. Each weight is widened
 * before it is multiplied, so results are those of weights in single precision. */
#ifndef DIAGMEM_DOT_W16_F32_H
#define DIAGMEM_DOT_W16_F32_H

#include "_half.h"
#include "_real.h"
#include "_runs.h"

#define DIAGMEM_BLOCK_W16 8

/* `channels` outputs of a pixel from channel `first` on, block by block: all runs are read, then the block is written.
 * `size`: weights of a channel. */
static inline void diagmem_put_channels_w16_f32(const diagmem_run *runs, int32_t count, const uint16_t *weights,
                                                int32_t size, const diagmem_channels_f32 *to, int32_t first,
                                                int32_t channels, float *out) {
    for (const int32_t end = first + channels; first < end; first += DIAGMEM_BLOCK_W16) {
        const int32_t together = end - first < DIAGMEM_BLOCK_W16 ? end - first : DIAGMEM_BLOCK_W16;
        const uint16_t *w = weights;
        float sums[DIAGMEM_BLOCK_W16] = {0};
        for (int32_t r = 0; r < count; ++r) {
            const float *const x = runs[r].at;
            for (int32_t k = 0; k < runs[r].count; ++k) {
                for (int32_t i = 0; i < together; ++i) {
                    sums[i] += x[k] * diagmem_half(*w++);
                }
            }
        }
        for (int32_t i = 0; i < together; ++i) {
            out[first + i] = diagmem_clamp_f32(sums[i] + to->bias[first + i], to->low, to->high);
        }
        weights += together * size;
    }
}

#endif
