/* MAX_POOL_2D on single precision. For each output pixel and channel: the channel's window is read, then the output is
 * written. */
#include "_real.h"
#include "_window.h"

typedef struct {
    diagmem_window window;
    float low; /* the range that the activation leaves */
    float high;
} diagmem_max_pool_2d_f32_params;

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_max_pool_2d_f32_row(const diagmem_max_pool_2d_f32_params *p, const void *const *rows,
                                               float *out) {
    const diagmem_window *const w = &p->window;
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        const diagmem_columns columns = diagmem_columns_of(w, x);
        for (int32_t c = 0; c < w->out_depth; ++c) {
            float largest = p->low;
            for (int32_t k = 0; k < w->kernel_h; ++k) {
                const float *const row = rows[k];
                for (int32_t tap = 0; row != NULL && tap < columns.count; ++tap) {
                    const float value = row[(columns.first + tap) * w->in_pitch + c];
                    largest = value > largest ? value : largest;
                }
            }
            out[c] = largest > p->high ? p->high : largest;
        }
    }
}

static inline void diagmem_max_pool_2d_f32(const diagmem_max_pool_2d_f32_params *p, const float *in, float *out) {
    const diagmem_window *const w = &p->window;
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_max_pool_2d_f32_row(p, rows, out + n * w->out_image + y * w->out_row);
        }
    }
}
