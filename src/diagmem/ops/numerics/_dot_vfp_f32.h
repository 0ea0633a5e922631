/* Dot products in single precision with the weights of a block of output channels, for floating-point units that
 * multiply and add in one instruction and round in between: the same bits as plain C. Each sum takes its products one
 * after the other, and the bias last.
 *
 * Weights of a block are interleaved: [input][channel]. All blocks have eight channels but the last. */
#ifndef DIAGMEM_DOT_VFP_F32_H
#define DIAGMEM_DOT_VFP_F32_H

#include "_dsp.h"
#include "_real.h"
#include "_runs.h"

#define DIAGMEM_VFP_BLOCK 8

#if defined(__ARM_FP) && (__ARM_FP & 4) && defined(__GNUC__)

#define DIAGMEM_VFP_STEP(x)                                                                      \
    "vldmia %[w]!, {s16-s23}\n\t"                                                                \
    "vmla.f32 %[a], " x ", s16\n\tvmla.f32 %[b], " x ", s17\n\tvmla.f32 %[c], " x ", s18\n\t"    \
    "vmla.f32 %[d], " x ", s19\n\tvmla.f32 %[e], " x ", s20\n\tvmla.f32 %[f], " x ", s21\n\t"    \
    "vmla.f32 %[g], " x ", s22\n\tvmla.f32 %[h], " x ", s23\n\t"

#define DIAGMEM_VFP_STEPS(steps)                                                                                      \
    __asm__(steps                                                                                                     \
            : [x] "+r"(x), [w] "+r"(w), [a] "+t"(a), [b] "+t"(b), [c] "+t"(c), [d] "+t"(d), [e] "+t"(e), [f] "+t"(f), \
              [g] "+t"(g), [h] "+t"(h)                                                                                \
            :                                                                                                         \
            : "s8", "s9", "s10", "s11", "s16", "s17", "s18", "s19", "s20", "s21", "s22", "s23", "memory")

#define DIAGMEM_VFP_ONE DIAGMEM_VFP_STEPS("vldmia %[x]!, {s8}\n\t" DIAGMEM_VFP_STEP("s8"))

#define DIAGMEM_VFP_FOUR                                                                      \
    DIAGMEM_VFP_STEPS("vldmia %[x]!, {s8-s11}\n\t" DIAGMEM_VFP_STEP("s8") DIAGMEM_VFP_STEP("s9") \
                          DIAGMEM_VFP_STEP("s10") DIAGMEM_VFP_STEP("s11"))

#else

#define DIAGMEM_VFP_ONE              \
    do {                             \
        const float value = *x++;    \
        a += value * w[0];           \
        b += value * w[1];           \
        c += value * w[2];           \
        d += value * w[3];           \
        e += value * w[4];           \
        f += value * w[5];           \
        g += value * w[6];           \
        h += value * w[7];           \
        w += DIAGMEM_VFP_BLOCK;      \
    } while (0)

#define DIAGMEM_VFP_FOUR \
    do {                 \
        DIAGMEM_VFP_ONE; \
        DIAGMEM_VFP_ONE; \
        DIAGMEM_VFP_ONE; \
        DIAGMEM_VFP_ONE; \
    } while (0)

#endif

/* Adds the products of all runs to the sums of a block. */
static DIAGMEM_APART void diagmem_add_runs_vfp_f32(const diagmem_run *runs, int32_t count, const float *w,
                                                   float *sums) {
    float a = sums[0], b = sums[1], c = sums[2], d = sums[3], e = sums[4], f = sums[5], g = sums[6], h = sums[7];
    for (const diagmem_run *const end = runs + count; runs != end; ++runs) {
        const float *x = runs->at;
        int32_t left = runs->count;
        for (; left >= 4; left -= 4) {
            DIAGMEM_VFP_FOUR;
        }
        for (; left > 0; --left) {
            DIAGMEM_VFP_ONE;
        }
    }
    sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d, sums[4] = e, sums[5] = f, sums[6] = g, sums[7] = h;
}

/* The same for a block of fewer channels. */
static DIAGMEM_APART void diagmem_add_rest_vfp_f32(const diagmem_run *runs, int32_t count, const float *w,
                                                   int32_t channels, float *sums) {
    for (const diagmem_run *const end = runs + count; runs != end; ++runs) {
        const float *const x = runs->at;
        for (int32_t k = 0; k < runs->count; ++k) {
            for (int32_t i = 0; i < channels; ++i) {
                sums[i] += x[k] * *w++;
            }
        }
    }
}

/* All outputs of a pixel, block by block: all runs are read, then the block is written. `size`: weights of a
 * channel. */
static inline void diagmem_put_channels_vfp_f32(const diagmem_run *runs, int32_t count, const float *weights,
                                                int32_t size, const diagmem_channels_f32 *to, int32_t channels,
                                                float *out) {
    for (int32_t first = 0; first < channels; first += DIAGMEM_VFP_BLOCK, weights += DIAGMEM_VFP_BLOCK * size) {
        const int32_t together = channels - first < DIAGMEM_VFP_BLOCK ? channels - first : DIAGMEM_VFP_BLOCK;
        float sums[DIAGMEM_VFP_BLOCK] = {0};
        if (together == DIAGMEM_VFP_BLOCK) {
            diagmem_add_runs_vfp_f32(runs, count, weights, sums);
        } else {
            diagmem_add_rest_vfp_f32(runs, count, weights, together, sums);
        }
        for (int32_t i = 0; i < together; ++i) {
            out[first + i] = diagmem_clamp_f32(sums[i] + to->bias[first + i], to->low, to->high);
        }
    }
}

#endif
