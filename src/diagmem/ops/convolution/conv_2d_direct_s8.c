/* CONV_2D on 8-bit integers, eight channels at a time, with weights that two channels share. For each output pixel and
 * block of channels the window is read, then the block is written. */
#include "../numerics/_packed_dot_s8.h"

typedef struct {
    diagmem_window window;
    const int8_t *padding; /* [in_depth], the input's zero point */
    diagmem_packed_s8 output;
} diagmem_conv_2d_direct_s8_params;

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_conv_2d_direct_s8_row(const diagmem_conv_2d_direct_s8_params *p, const void *const *rows,
                                                 int8_t *out) {
    const diagmem_window *const w = &p->window;
    diagmem_run runs[DIAGMEM_MAX_TAPS];
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        const int32_t column = diagmem_column(w, x);
        const int32_t count = diagmem_find_runs(w, rows, column, 0, w->in_depth, p->padding, sizeof *out, runs);
        diagmem_put_packed_s8(runs, count, &p->output, out);
    }
}

static inline void diagmem_conv_2d_direct_s8(const diagmem_conv_2d_direct_s8_params *p, const int8_t *in,
                                             int8_t *out) {
    const diagmem_window *const w = &p->window;
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_conv_2d_direct_s8_row(p, rows, out + n * w->out_image + y * w->out_row);
        }
    }
}
