/* CONV_2D on single precision for floating-point units that multiply and add in one instruction. For each output pixel,
 * a block of output channels at a time: the window is read, then the block is written. */
#include "../numerics/_dot_vfp_f32.h"

typedef struct {
    diagmem_window window;
    const float *filter;  /* blocks of output channels; each channel has [kernel_h][kernel_w][in_depth] */
    const float *padding; /* [in_depth], zeros */
    diagmem_channels_f32 output;
} diagmem_conv_2d_vfp_f32_params;

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_conv_2d_vfp_f32_row(const diagmem_conv_2d_vfp_f32_params *p, const void *const *rows,
                                               float *out) {
    const diagmem_window *const w = &p->window;
    const int32_t size = w->kernel_h * w->kernel_w * w->in_depth;
    diagmem_run runs[DIAGMEM_MAX_TAPS];
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        const int32_t column = diagmem_column(w, x);
        const int32_t count = diagmem_find_runs(w, rows, column, 0, w->in_depth, p->padding, sizeof *out, runs);
        diagmem_put_channels_vfp_f32(runs, count, p->filter, size, &p->output, w->out_depth, out);
    }
}

static inline void diagmem_conv_2d_vfp_f32(const diagmem_conv_2d_vfp_f32_params *p, const float *in, float *out) {
    const diagmem_window *const w = &p->window;
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_conv_2d_vfp_f32_row(p, rows, out + n * w->out_image + y * w->out_row);
        }
    }
}
