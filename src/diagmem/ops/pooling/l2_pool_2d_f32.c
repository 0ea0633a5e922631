/* L2_POOL_2D on single precision: the root of the mean square of each window. For each output pixel and channel: the
 * channel's window is read, then the output is written. */
#include <math.h>

#include "_pool_2d.h"
#include "../numerics/_real.h"

typedef struct {
    diagmem_window window;
    float low; /* the range that the activation leaves */
    float high;
} diagmem_l2_pool_2d_f32_params;

/* Of `width` pixels of each row that is inside the image, from element `start` on. */
static inline float diagmem_root_mean_square(const diagmem_window *w, const void *const *rows, int32_t start,
                                             int32_t width) {
    float sum = 0.0f;
    int32_t count = 0;
    for (int32_t k = 0; k < w->kernel_h; ++k) {
        const float *const row = rows[k];
        if (row != NULL) {
            for (int32_t tap = 0; tap < width; ++tap) {
                const float x = row[start + tap * w->in_pitch];
                sum += x * x;
            }
            count += width;
        }
    }
    return sqrtf(sum / (float)count);
}

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_l2_pool_2d_f32_row(const diagmem_l2_pool_2d_f32_params *p, const void *const *rows,
                                              float *out) {
    const diagmem_window *const w = &p->window;
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        const diagmem_columns columns = diagmem_columns_of(w, x);
        for (int32_t c = 0; c < w->out_depth; ++c) {
            const float root = diagmem_root_mean_square(w, rows, columns.first * w->in_pitch + c, columns.count);
            out[c] = diagmem_clamp_f32(root, p->low, p->high);
        }
    }
}

DIAGMEM_ALL_ROWS(diagmem_l2_pool_2d_f32, float)
