/* MAX_POOL_2D on 8-bit integers, sixteen channels at a time: their windows are read, then their outputs are written.
 * The last ones may be fewer. */
#include "../numerics/_mve.h"
#include "_pool_2d.h"

typedef struct {
    diagmem_window window;
    int32_t low; /* the range that the activation leaves */
    int32_t high;
} diagmem_max_pool_2d_mve_s8_params;

#if DIAGMEM_HAS_MVE

DIAGMEM_IN_ORDER

/* The largest of up to sixteen channels each; `left` remain. */
static inline void diagmem_put_largest_s8(const diagmem_max_pool_2d_mve_s8_params *p, const void *const *rows,
                                          int32_t start, int32_t width, int32_t left, int8_t *out) {
    const mve_pred16_t some = vctp8q((uint32_t)left);
    int8x16_t largest = vdupq_n_s8((int8_t)p->low);
    for (int32_t k = 0; k < p->window.kernel_h; ++k) {
        if (rows[k] != NULL) {
            const int8_t *in = (const int8_t *)rows[k] + start;
            for (int32_t tap = width; tap > 0; --tap, in += p->window.in_pitch) {
                largest = vmaxq_s8(largest, vldrbq_z_s8(in, some));
            }
        }
    }
    vstrbq_p_s8(out, vminq_s8(largest, vdupq_n_s8((int8_t)p->high)), some);
}

DIAGMEM_IN_ANY_ORDER

#else

static inline void diagmem_put_largest_s8(const diagmem_max_pool_2d_mve_s8_params *p, const void *const *rows,
                                          int32_t start, int32_t width, int32_t left, int8_t *out) {
    int32_t largest[16];
    for (int32_t i = 0; i < 16 && i < left; ++i) {
        largest[i] = p->low;
        for (int32_t k = 0; k < p->window.kernel_h; ++k) {
            for (int32_t tap = 0; rows[k] != NULL && tap < width; ++tap) {
                const int32_t value = ((const int8_t *)rows[k])[start + tap * p->window.in_pitch + i];
                largest[i] = value > largest[i] ? value : largest[i];
            }
        }
    }
    for (int32_t i = 0; i < 16 && i < left; ++i) {
        out[i] = (int8_t)(largest[i] > p->high ? p->high : largest[i]);
    }
}

#endif

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_max_pool_2d_mve_s8_row(const diagmem_max_pool_2d_mve_s8_params *p, const void *const *rows,
                                                  int8_t *out) {
    const diagmem_window *const w = &p->window;
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        const diagmem_columns columns = diagmem_columns_of(w, x);
        for (int32_t c = 0; c < w->out_depth; c += 16) {
            diagmem_put_largest_s8(p, rows, columns.first * w->in_pitch + c, columns.count, w->out_depth - c, out + c);
        }
    }
}

DIAGMEM_ALL_ROWS(diagmem_max_pool_2d_mve_s8, int8_t)
