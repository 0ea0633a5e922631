/* AVERAGE_POOL_2D on 8-bit integers of two scales, rounded once, halves to even. For each output pixel and channel: the
 * channel's window is read, then the output is written. */
#include "_average_to_even.h"

typedef diagmem_average_to_even diagmem_average_pool_2d_to_even_s8_params;

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_average_pool_2d_to_even_s8_row(const diagmem_average_pool_2d_to_even_s8_params *p,
                                                          const void *const *rows, int8_t *out) {
    const diagmem_window *const w = &p->window;
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        const diagmem_columns columns = diagmem_columns_of(w, x);
        for (int32_t c = 0; c < w->out_depth; ++c) {
            out[c] = diagmem_one_mean_to_even(p, rows, columns.first * w->in_pitch + c, columns.count);
        }
    }
}

DIAGMEM_ALL_ROWS(diagmem_average_pool_2d_to_even_s8, int8_t)
