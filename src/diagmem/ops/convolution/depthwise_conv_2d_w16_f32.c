/* DEPTHWISE_CONV_2D on single precision with weights of half precision. For each output pixel and channel: the
 * channel's window is read, then the output is written. */
#include "../numerics/_half.h"
#include "../numerics/_real.h"
#include "../loops/_window.h"

typedef struct {
    diagmem_window window;
    int32_t multiplier;     /* output channels for each input channel */
    const uint16_t *filter; /* [out_depth][kernel_h][kernel_w] */
    const float *padding;   /* [in_depth], zeros */
    diagmem_channels_f32 output;
} diagmem_depthwise_conv_2d_w16_f32_params;

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_depthwise_conv_2d_w16_f32_row(const diagmem_depthwise_conv_2d_w16_f32_params *p,
                                                         const void *const *rows, float *out) {
    const diagmem_window *const w = &p->window;
    const diagmem_channels_f32 output = p->output;
    const int32_t count = w->kernel_h * w->kernel_w;
    const void *taps[DIAGMEM_MAX_TAPS];
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        const uint16_t *weights = p->filter;
        diagmem_find_taps(w, rows, diagmem_column(w, x), p->padding, sizeof *out, taps);
        for (int32_t c = 0; c < w->out_depth; ++c, weights += count) {
            float sum = 0.0f;
            for (int32_t t = 0; t < count; ++t) {
                sum += ((const float *)taps[t])[c / p->multiplier] * diagmem_half(weights[t]);
            }
            out[c] = diagmem_clamp_f32(sum + output.bias[c], output.low, output.high);
        }
    }
}

static inline void diagmem_depthwise_conv_2d_w16_f32(const diagmem_depthwise_conv_2d_w16_f32_params *p, const float *in,
                                                     float *out) {
    const diagmem_window *const w = &p->window;
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_depthwise_conv_2d_w16_f32_row(p, rows, out + n * w->out_image + y * w->out_row);
        }
    }
}
