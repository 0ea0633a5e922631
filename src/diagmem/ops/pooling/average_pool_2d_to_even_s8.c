/* AVERAGE_POOL_2D on 8-bit integers of two scales: real numbers in between, rounded once, halves to even. For each
 * output pixel and channel: the channel's window is read, then the output is written. */
#include <math.h>

#include "_pool_2d.h"

typedef struct {
    diagmem_window window;
    int32_t low; /* the range that the activation leaves */
    int32_t high;
    float in_scale;
    int32_t in_zero_point;
    float scale;
    int32_t zero_point;
    int32_t lower; /* by how much stored values are below those that are rounded */
} diagmem_average_pool_2d_to_even_s8_params;

/* The mean of `width` pixels of each row that is inside the image, from element `start` on. */
static inline float diagmem_average_pool_2d_to_even_s8_mean(const diagmem_average_pool_2d_to_even_s8_params *p,
                                                            const void *const *rows, int32_t start, int32_t width) {
    float sum = 0.0f;
    int32_t count = 0;
    for (int32_t k = 0; k < p->window.kernel_h; ++k) {
        const int8_t *const row = rows[k];
        if (row != NULL) {
            for (int32_t tap = 0; tap < width; ++tap) {
                const float real = p->in_scale * (float)(row[start + tap * p->window.in_pitch] - p->in_zero_point);
                sum += real;
            }
            count += width;
        }
    }
    return sum / (float)count;
}

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_average_pool_2d_to_even_s8_row(const diagmem_average_pool_2d_to_even_s8_params *p,
                                                          const void *const *rows, int8_t *out) {
    const diagmem_window *const w = &p->window;
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        const diagmem_columns columns = diagmem_columns_of(w, x);
        for (int32_t c = 0; c < w->out_depth; ++c) {
            const int32_t start = columns.first * w->in_pitch + c;
            const float units = diagmem_average_pool_2d_to_even_s8_mean(p, rows, start, columns.count) / p->scale;
            const float value = rintf(units + (float)(p->zero_point + p->lower)) - (float)p->lower;
            out[c] = (int8_t)(value < (float)p->low ? p->low : value > (float)p->high ? p->high : (int32_t)value);
        }
    }
}

DIAGMEM_ALL_ROWS(diagmem_average_pool_2d_to_even_s8, int8_t)
