/* Dot products of 8-bit inputs with the weights of a block of output channels: each input is loaded once for all.
 *
 * Weights of a block are interleaved: [input][channel]. All blocks have DIAGMEM_BLOCK channels but the last. */
#ifndef DIAGMEM_DOT_S8_H
#define DIAGMEM_DOT_S8_H

#include <stdint.h>

#include "_channels_s8.h"
#include "../_compiler.h"
#include "_runs.h"

#define DIAGMEM_BLOCK 8

#define DIAGMEM_STEP                \
    do {                            \
        const int32_t value = *x++; \
        a += value * w[0];          \
        b += value * w[1];          \
        c += value * w[2];          \
        d += value * w[3];          \
        e += value * w[4];          \
        f += value * w[5];          \
        g += value * w[6];          \
        h += value * w[7];          \
        w += DIAGMEM_BLOCK;         \
    } while (0)

/* Adds the products of all runs to the sums of a block. Apart, so that the sums have the registers for themselves. */
static DIAGMEM_NOINLINE void diagmem_add_runs_s8(const diagmem_run *runs, int32_t count, const int8_t *w,
                                                 int32_t *sums) {
    int32_t a = sums[0], b = sums[1], c = sums[2], d = sums[3], e = sums[4], f = sums[5], g = sums[6], h = sums[7];
    for (const diagmem_run *const end = runs + count; runs != end; ++runs) {
        const int8_t *x = runs->at;
        int32_t left = runs->count;
        for (; left >= 8; left -= 8) {
            DIAGMEM_STEP;
            DIAGMEM_STEP;
            DIAGMEM_STEP;
            DIAGMEM_STEP;
            DIAGMEM_STEP;
            DIAGMEM_STEP;
            DIAGMEM_STEP;
            DIAGMEM_STEP;
        }
        for (; left > 0; --left) {
            DIAGMEM_STEP;
        }
    }
    sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d, sums[4] = e, sums[5] = f, sums[6] = g, sums[7] = h;
}

#undef DIAGMEM_STEP

/* Reads all runs, then writes a block of outputs. */
static inline void diagmem_put_block_s8(const diagmem_run *runs, int32_t count, const int8_t *weights,
                                        const diagmem_channels_s8 *to, int8_t *out) {
    int32_t sums[DIAGMEM_BLOCK];
    for (int32_t i = 0; i < DIAGMEM_BLOCK; ++i) {
        sums[i] = to->bias[i];
    }
    diagmem_add_runs_s8(runs, count, weights, sums);
    if (to->is_plain) {
        for (int32_t i = 0; i < DIAGMEM_BLOCK; ++i) {
            out[i] = diagmem_plain_s8(to, i, sums[i]);
        }
    } else {
        for (int32_t i = 0; i < DIAGMEM_BLOCK; ++i) {
            out[i] = diagmem_general_s8(to, i, sums[i]);
        }
    }
}

/* The same for a block of fewer channels. */
static inline void diagmem_put_rest_s8(const diagmem_run *runs, int32_t count, const int8_t *weights,
                                       const diagmem_channels_s8 *to, int32_t channels, int8_t *out) {
    int32_t sums[DIAGMEM_BLOCK];
    for (int32_t i = 0; i < channels; ++i) {
        sums[i] = to->bias[i];
    }
    for (const diagmem_run *const end = runs + count; runs != end; ++runs) {
        const int8_t *const x = runs->at;
        for (int32_t k = 0; k < runs->count; ++k) {
            for (int32_t i = 0; i < channels; ++i) {
                sums[i] += x[k] * *weights++;
            }
        }
    }
    for (int32_t i = 0; i < channels; ++i) {
        out[i] = diagmem_general_s8(to, i, sums[i]);
    }
}

/* `channels` outputs of a pixel from channel `first` on, block by block. `size`: weights of a channel. */
static inline void diagmem_put_channels_s8(const diagmem_run *runs, int32_t count, const int8_t *weights, int32_t size,
                                           const diagmem_channels_s8 *to, int32_t first, int32_t channels,
                                           int8_t *out) {
    diagmem_channels_s8 block = diagmem_channels_from(to, first);
    for (out += first; channels >= DIAGMEM_BLOCK; channels -= DIAGMEM_BLOCK) {
        diagmem_put_block_s8(runs, count, weights, &block, out);
        weights += DIAGMEM_BLOCK * size;
        block = diagmem_channels_from(&block, DIAGMEM_BLOCK);
        out += DIAGMEM_BLOCK;
    }
    if (channels > 0) {
        diagmem_put_rest_s8(runs, count, weights, &block, channels, out);
    }
}

#endif
