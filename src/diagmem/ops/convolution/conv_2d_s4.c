/* CONV_2D on 8-bit integers with 4-bit weights. For each output pixel, a block of output channels at a time: the window
 * is read, then the block is written. In a grouped convolution a block is one channel. */
#include "../numerics/_dot_s4.h"
#include "../numerics/_runs.h"

typedef struct {
    diagmem_window window;
    int32_t groups;
    const uint8_t *filter; /* blocks of output channels; each channel has [kernel_h][kernel_w][in_depth / groups] */
    const int8_t *padding; /* [in_depth], the input's zero point */
    diagmem_channels_s8 output;
} diagmem_conv_2d_s4_params;

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_conv_2d_s4_row(const diagmem_conv_2d_s4_params *p, const void *const *rows, int8_t *out) {
    const diagmem_window *const w = &p->window;
    const int32_t depth = w->in_depth / p->groups;
    const int32_t size = w->kernel_h * w->kernel_w * depth;
    const int32_t together = p->groups == 1 ? w->out_depth : 1;
    diagmem_run runs[DIAGMEM_MAX_TAPS];
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        for (int32_t c = 0; c < w->out_depth; c += together) {
            const int32_t from = c / (w->out_depth / p->groups) * depth;
            const int32_t count =
                diagmem_find_runs(w, rows, diagmem_column(w, x), from, depth, p->padding, sizeof *out, runs);
            diagmem_put_channels_s4(runs, count, p->filter + c * size, size, &p->output, c, together, out);
        }
    }
}

static inline void diagmem_conv_2d_s4(const diagmem_conv_2d_s4_params *p, const int8_t *in, int8_t *out) {
    const diagmem_window *const w = &p->window;
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_conv_2d_s4_row(p, rows, out + n * w->out_image + y * w->out_row);
        }
    }
}
