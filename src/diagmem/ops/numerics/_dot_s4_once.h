/* The same as `_dot_s4.h` with a scale for each channel, by which sums are rounded once. */
#ifndef DIAGMEM_DOT_S4_ONCE_H
#define DIAGMEM_DOT_S4_ONCE_H

#include "_dot_s4.h"
#include "_rounded_once.h"

/* What is one unit of the input, of each channel's weights, and of the output. */
typedef struct {
    const float *filter;
    float in;
    float out;
} diagmem_scales_s4;

/* `channels` outputs of a row, block by block: the run is read, then the block is written. */
static inline void diagmem_put_channels_s4_once(const diagmem_run *run, const uint8_t *weights,
                                                const diagmem_scales_s4 *scales, const diagmem_channels_s8 *to,
                                                int32_t channels, int8_t *out) {
    for (int32_t first = 0; first < channels; first += DIAGMEM_BLOCK_S4) {
        const int32_t together = channels - first < DIAGMEM_BLOCK_S4 ? channels - first : DIAGMEM_BLOCK_S4;
        int32_t sums[DIAGMEM_BLOCK_S4];
        for (int32_t i = 0; i < together; ++i) {
            sums[i] = to->bias[first + i];
        }
        diagmem_add_block_s4(run, 1, weights, together, sums);
        for (int32_t i = 0; i < together; ++i) {
            const double scale = (double)scales->in * (double)scales->filter[first + i] / (double)scales->out;
            out[first + i] = (int8_t)diagmem_rounded_once(to, sums[i], scale);
        }
        weights += (together + 1) / 2 * run->count;
    }
}

#endif
