/* AVERAGE_POOL_2D on 16-bit integers. For each output pixel and channel: the channel's window is read, then the output
 * is written. */
#include "_average.h"
#include "_fixed_point.h"

typedef struct {
    diagmem_window window;
    int32_t low; /* the range that the activation leaves */
    int32_t high;
} diagmem_average_pool_2d_s16_params;

/* The mean of `width` pixels of each row that is inside the image, from element `start` on; halves away from zero. */
static inline int32_t diagmem_average_pool_2d_s16_mean(const diagmem_window *w, const void *const *rows, int32_t start,
                                                      int32_t width) {
    int32_t sum = 0;
    int32_t count = 0;
    for (int32_t k = 0; k < w->kernel_h; ++k) {
        const int16_t *const row = rows[k];
        if (row != NULL) {
            for (int32_t tap = 0; tap < width; ++tap) {
                sum += row[start + tap * w->in_pitch];
            }
            count += width;
        }
    }
    return diagmem_rounded_mean(sum, count);
}

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_average_pool_2d_s16_row(const diagmem_average_pool_2d_s16_params *p, const void *const *rows,
                                                  int16_t *out) {
    const diagmem_window *const w = &p->window;
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        const diagmem_columns columns = diagmem_columns_of(w, x);
        for (int32_t c = 0; c < w->out_depth; ++c) {
            const int32_t start = columns.first * w->in_pitch + c;
            const int32_t mean = diagmem_average_pool_2d_s16_mean(w, rows, start, columns.count);
            out[c] = (int16_t)diagmem_clamp(mean, p->low, p->high);
        }
    }
}

static inline void diagmem_average_pool_2d_s16(const diagmem_average_pool_2d_s16_params *p, const int16_t *in,
                                              int16_t *out) {
    const diagmem_window *const w = &p->window;
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_average_pool_2d_s16_row(p, rows, out + n * w->out_image + y * w->out_row);
        }
    }
}

DIAGMEM_AVERAGE_OF_ROWS(diagmem_average_pool_2d_s16_take, diagmem_average_pool_2d_s16_params, int16_t, int32_t,
                        diagmem_clamp(diagmem_rounded_mean(total, count), p->low, p->high))
