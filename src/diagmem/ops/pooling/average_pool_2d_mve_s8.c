/* AVERAGE_POOL_2D on 8-bit integers, windows of at most 255 pixels, eight channels at a time: their windows are read,
 * then their outputs are written. The last ones may be fewer. */
#include "../numerics/_mve.h"
#include "_pool_2d.h"

typedef struct {
    diagmem_window window;
    int32_t low; /* the range that the activation leaves */
    int32_t high;
} diagmem_average_pool_2d_mve_s8_params;

#if DIAGMEM_HAS_MVE

DIAGMEM_IN_ORDER

/* 16-bit numbers divided by `count`, to the nearest integers, halves away from zero. `part`: 2^31 / count + 1. */
static inline int16x8_t diagmem_eight_means(int16x8_t sums, int32_t count, uint32_t part) {
    const uint16x8_t sizes = vaddq_n_u16(vreinterpretq_u16_s16(vabsq_s16(sums)), (uint16_t)(count / 2));
    const uint32x4_t parts = vdupq_n_u32(part);
    const uint32x4_t even = vmulhq_u32(vshllbq_n_u16(sizes, 1), parts);
    const uint32x4_t odd = vmulhq_u32(vshlltq_n_u16(sizes, 1), parts);
    const int16x8_t means = vreinterpretq_s16_u16(vmovntq_u32(vmovnbq_u32(vuninitializedq_u16(), even), odd));
    return vnegq_m_s16(means, means, vcmpltq_n_s16(sums, 0));
}

/* Means of up to eight channels; `left` remain. */
static inline void diagmem_put_means_s8(const diagmem_average_pool_2d_mve_s8_params *p, const void *const *rows,
                                        int32_t start, int32_t width, int32_t left, int8_t *out) {
    const mve_pred16_t some = vctp16q((uint32_t)left);
    int16x8_t sums = vdupq_n_s16(0);
    int32_t count = 0;
    for (int32_t k = 0; k < p->window.kernel_h; ++k) {
        if (rows[k] != NULL) {
            const int8_t *in = (const int8_t *)rows[k] + start;
            for (int32_t tap = width; tap > 0; --tap, in += p->window.in_pitch) {
                sums = vaddq_s16(sums, vldrbq_z_s16(in, some));
            }
            count += width;
        }
    }
    sums = diagmem_eight_means(sums, count, 0x80000000u / (uint32_t)count + 1u);
    sums = vminq_s16(vmaxq_s16(sums, vdupq_n_s16((int16_t)p->low)), vdupq_n_s16((int16_t)p->high));
    vstrbq_p_s16(out, sums, some);
}

DIAGMEM_IN_ANY_ORDER

#else

static inline void diagmem_put_means_s8(const diagmem_average_pool_2d_mve_s8_params *p, const void *const *rows,
                                        int32_t start, int32_t width, int32_t left, int8_t *out) {
    int32_t sums[8] = {0};
    int32_t count = 0;
    for (int32_t k = 0; k < p->window.kernel_h; ++k) {
        for (int32_t tap = 0; rows[k] != NULL && tap < width; ++tap, ++count) {
            for (int32_t i = 0; i < 8 && i < left; ++i) {
                sums[i] += ((const int8_t *)rows[k])[start + tap * p->window.in_pitch + i];
            }
        }
    }
    for (int32_t i = 0; i < 8 && i < left; ++i) {
        const int32_t half = sums[i] > 0 ? count / 2 : -(count / 2);
        out[i] = (int8_t)diagmem_clamp((sums[i] + half) / count, p->low, p->high);
    }
}

#endif

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_average_pool_2d_mve_s8_row(const diagmem_average_pool_2d_mve_s8_params *p,
                                                      const void *const *rows, int8_t *out) {
    const diagmem_window *const w = &p->window;
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        const diagmem_columns columns = diagmem_columns_of(w, x);
        for (int32_t c = 0; c < w->out_depth; c += 8) {
            diagmem_put_means_s8(p, rows, columns.first * w->in_pitch + c, columns.count, w->out_depth - c, out + c);
        }
    }
}

DIAGMEM_ALL_ROWS(diagmem_average_pool_2d_mve_s8, int8_t)
