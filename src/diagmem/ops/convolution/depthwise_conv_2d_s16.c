/* DEPTHWISE_CONV_2D on 16-bit integers with 8-bit weights. For each output pixel and channel: the channel's window is
 * read, then the output is written. */
#include "../numerics/_channels_s16.h"
#include "../loops/_window.h"

typedef struct {
    diagmem_window window;
    int32_t multiplier;     /* output channels for each input channel */
    const int8_t *filter;   /* [out_depth][kernel_h][kernel_w] */
    const int16_t *padding; /* [in_depth], zeros */
    diagmem_channels_s16 output;
} diagmem_depthwise_conv_2d_s16_params;

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_depthwise_conv_2d_s16_row(const diagmem_depthwise_conv_2d_s16_params *p,
                                                     const void *const *rows, int16_t *out) {
    const diagmem_window *const w = &p->window;
    const int32_t count = w->kernel_h * w->kernel_w;
    const void *taps[DIAGMEM_MAX_TAPS];
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        const int8_t *weights = p->filter;
        diagmem_find_taps(w, rows, diagmem_column(w, x), p->padding, sizeof *out, taps);
        for (int32_t c = 0; c < w->out_depth; ++c, weights += count) {
            int64_t sum = 0;
            for (int32_t t = 0; t < count; ++t) {
                sum += ((const int16_t *)taps[t])[c / p->multiplier] * weights[t];
            }
            out[c] = diagmem_finish_s16(&p->output, c, sum);
        }
    }
}

static inline void diagmem_depthwise_conv_2d_s16(const diagmem_depthwise_conv_2d_s16_params *p, const int16_t *in,
                                                 int16_t *out) {
    const diagmem_window *const w = &p->window;
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_depthwise_conv_2d_s16_row(p, rows, out + n * w->out_image + y * w->out_row);
        }
    }
}
