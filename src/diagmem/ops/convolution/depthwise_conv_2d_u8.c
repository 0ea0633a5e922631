/* DEPTHWISE_CONV_2D on unsigned 8-bit integers. For each output pixel and channel: the channel's window is read, then
 * the output is written. */
#include "../numerics/_channels_s8.h"
#include "../loops/_window.h"

typedef struct {
    diagmem_window window;
    int32_t multiplier;     /* output channels for each input channel */
    const int8_t *filter;   /* [out_depth][kernel_h][kernel_w] */
    const uint8_t *padding; /* [in_depth], the input's zero point */
    diagmem_channels_s8 output;
    int32_t filter_zero_point;
} diagmem_depthwise_conv_2d_u8_params;

static inline void diagmem_depthwise_conv_2d_u8_pixel(const diagmem_depthwise_conv_2d_u8_params *p,
                                                      const void *const *taps, uint8_t *out) {
    const int32_t count = p->window.kernel_h * p->window.kernel_w;
    const int32_t zero_point = p->filter_zero_point;
    const int8_t *weights = p->filter;
    for (int32_t c = 0; c < p->window.out_depth; ++c, weights += count) {
        int32_t sum = 0;
        for (int32_t t = 0; t < count; ++t) {
            sum += ((const uint8_t *)taps[t])[c / p->multiplier] * (weights[t] - zero_point);
        }
        out[c] = diagmem_general_u8(&p->output, c, diagmem_wrapping_add(sum, p->output.bias[c]));
    }
}

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_depthwise_conv_2d_u8_row(const diagmem_depthwise_conv_2d_u8_params *p,
                                                    const void *const *rows, uint8_t *out) {
    const diagmem_window *const w = &p->window;
    const void *taps[DIAGMEM_MAX_TAPS];
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        diagmem_find_taps(w, rows, diagmem_column(w, x), p->padding, sizeof *out, taps);
        diagmem_depthwise_conv_2d_u8_pixel(p, taps, out);
    }
}

static inline void diagmem_depthwise_conv_2d_u8(const diagmem_depthwise_conv_2d_u8_params *p, const uint8_t *in,
                                                uint8_t *out) {
    const diagmem_window *const w = &p->window;
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_depthwise_conv_2d_u8_row(p, rows, out + n * w->out_image + y * w->out_row);
        }
    }
}
