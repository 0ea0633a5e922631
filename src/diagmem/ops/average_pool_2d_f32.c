/* AVERAGE_POOL_2D on single precision. For each output pixel and channel: the channel's window is read, then the output
 * is written. */
#include "_average.h"
#include "_real.h"

typedef struct {
    diagmem_window window;
    float low; /* the range that the activation leaves */
    float high;
} diagmem_average_pool_2d_f32_params;

/* The mean of `width` pixels of each row that is inside the image, from element `start` on. */
static inline float diagmem_average_pool_2d_f32_mean(const diagmem_window *w, const void *const *rows, int32_t start,
                                                     int32_t width) {
    float sum = 0.0f;
    int32_t count = 0;
    for (int32_t k = 0; k < w->kernel_h; ++k) {
        const float *const row = rows[k];
        if (row != NULL) {
            for (int32_t tap = 0; tap < width; ++tap) {
                sum += row[start + tap * w->in_pitch];
            }
            count += width;
        }
    }
    return sum / (float)count;
}

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_average_pool_2d_f32_row(const diagmem_average_pool_2d_f32_params *p, const void *const *rows,
                                                   float *out) {
    const diagmem_window *const w = &p->window;
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        const diagmem_columns columns = diagmem_columns_of(w, x);
        for (int32_t c = 0; c < w->out_depth; ++c) {
            const int32_t start = columns.first * w->in_pitch + c;
            const float mean = diagmem_average_pool_2d_f32_mean(w, rows, start, columns.count);
            out[c] = diagmem_clamp_f32(mean, p->low, p->high);
        }
    }
}

static inline void diagmem_average_pool_2d_f32(const diagmem_average_pool_2d_f32_params *p, const float *in,
                                               float *out) {
    const diagmem_window *const w = &p->window;
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_average_pool_2d_f32_row(p, rows, out + n * w->out_image + y * w->out_row);
        }
    }
}

DIAGMEM_AVERAGE_OF_ROWS(diagmem_average_pool_2d_f32_take, diagmem_average_pool_2d_f32_params, float, float,
                        diagmem_clamp_f32(total / (float)count, p->low, p->high))
