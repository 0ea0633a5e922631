/* Dot products of 8-bit inputs with the weights of a block of output channels: each input is loaded once for all.
 *
 * Weights of a block are interleaved: [input][channel]. All blocks have DIAGMEM_BLOCK channels but the last. With a
 * bias, sums may wrap around, as those of TensorFlow Lite do where it is compiled. */
#ifndef DIAGMEM_DOT_S8_H
#define DIAGMEM_DOT_S8_H

#include <stdint.h>

#include "_channels_s8.h"
#include "../_compiler.h"
#include "_runs.h"

#define DIAGMEM_BLOCK 8

#if defined(__GNUC__) && defined(__thumb__) && !defined(__thumb2__)

/* One input and four channels. r0: the run's start, r1: 8 times the number of the input; r2 to r5: weights. */
#define DIAGMEM_STEP                                   \
    "lsrs r7, r1, #3\n\tldrsb r6, [r0, r7]\n\t"        \
    "ldrsb r7, [r2, r1]\n\tmuls r7, r6\n\tadd r8, r7\n\t"  \
    "ldrsb r7, [r3, r1]\n\tmuls r7, r6\n\tadd r9, r7\n\t"  \
    "ldrsb r7, [r4, r1]\n\tmuls r7, r6\n\tadd r10, r7\n\t" \
    "ldrsb r7, [r5, r1]\n\tmuls r7, r6\n\tadd r11, r7\n\t" \
    "adds r1, #8\n\t"

/* Adds up the products of all runs for four of a block's channels. Thumb without its second version reaches eight
 * registers with most of its instructions, and adds to all: sums are in the others. Weights go on from run to run, so
 * r0 is a run's start less the inputs before it. */
#define DIAGMEM_GIVEN __attribute__((unused))
#define DIAGMEM_NAKED __attribute__((naked, noinline))
static DIAGMEM_NAKED void diagmem_add_four_s8(const diagmem_run *runs DIAGMEM_GIVEN,
                                              int32_t count DIAGMEM_GIVEN,
                                              const int8_t *w DIAGMEM_GIVEN,
                                              int32_t *sums DIAGMEM_GIVEN) {
    __asm__ volatile(
        ".syntax unified\n\t"
        "push {r3-r7, lr}\n\t"
        "mov r4, r8\n\tmov r5, r9\n\tmov r6, r10\n\tmov r7, r11\n\tpush {r4-r7}\n\t"
        "lsls r1, r1, #3\n\tadds r1, r1, r0\n\tpush {r1}\n\t" /* the end of the runs */
        "movs r4, #0\n\tmov r8, r4\n\tmov r9, r4\n\tmov r10, r4\n\tmov r11, r4\n\t"
        "mov r12, r0\n\tmovs r1, #0\n\t"
        "adds r3, r2, #1\n\tadds r4, r2, #2\n\tadds r5, r2, #3\n"
        "1:\tmov r6, r12\n\tldr r7, [sp]\n\tcmp r6, r7\n\tbeq 6f\n\t"
        "ldr r0, [r6]\n\tldr r7, [r6, #4]\n\tadds r6, #8\n\tmov r12, r6\n\t"
        "lsrs r6, r1, #3\n\tsubs r0, r0, r6\n\t"
        "lsls r7, r7, #3\n\tadds r7, r7, r1\n\tmov lr, r7\n" /* the end of the run */
        "2:\tmov r6, lr\n\tsubs r6, r6, r1\n\tlsls r6, r6, #27\n\tbeq 4f\n\t" DIAGMEM_STEP
        "b 2b\n"
        "3:\t" DIAGMEM_STEP DIAGMEM_STEP DIAGMEM_STEP DIAGMEM_STEP
        "4:\tcmp r1, lr\n\tbne 3b\n\t"
        "b 1b\n"
        "6:\tpop {r1}\n\tldr r3, [sp, #16]\n\t"
        "mov r4, r8\n\tstr r4, [r3]\n\tmov r4, r9\n\tstr r4, [r3, #4]\n\t"
        "mov r4, r10\n\tstr r4, [r3, #8]\n\tmov r4, r11\n\tstr r4, [r3, #12]\n\t"
        "pop {r4-r7}\n\tmov r8, r4\n\tmov r9, r5\n\tmov r10, r6\n\tmov r11, r7\n\t"
        "pop {r3-r7, pc}");
}

static DIAGMEM_NOINLINE void diagmem_add_runs_s8(const diagmem_run *runs, int32_t count, const int8_t *w,
                                                 int32_t *sums) {
    diagmem_add_four_s8(runs, count, w, sums);
    diagmem_add_four_s8(runs, count, w + 4, sums + 4);
}

#else

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

/* Adds up the products of all runs for a block. Apart, so that the sums have the registers for themselves. */
static DIAGMEM_NOINLINE void diagmem_add_runs_s8(const diagmem_run *runs, int32_t count, const int8_t *w,
                                                 int32_t *sums) {
    int32_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
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

#endif

#undef DIAGMEM_STEP

/* Reads all runs, then writes a block of outputs. */
static inline void diagmem_put_block_s8(const diagmem_run *runs, int32_t count, const int8_t *weights,
                                        const diagmem_channels_s8 *to, int8_t *out) {
    int32_t sums[DIAGMEM_BLOCK];
    diagmem_add_runs_s8(runs, count, weights, sums);
    if (diagmem_is_quick(to)) {
        for (int32_t i = 0; i < DIAGMEM_BLOCK; ++i) {
            out[i] = diagmem_quick_s8(to, i, sums[i]);
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
    int32_t sums[DIAGMEM_BLOCK] = {0};
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
