/* DEPTHWISE_CONV_2D on 8-bit integers with 4-bit weights. For each output pixel and channel: the channel's window is
 * read, then the output is written. */
#include "../numerics/_dot_s4.h"
#include "../loops/_window.h"

typedef struct {
    diagmem_window window;
    int32_t multiplier;    /* output channels for each input channel */
    const uint8_t *filter; /* [out_depth][kernel_h][kernel_w], whole bytes for each channel */
    const int8_t *padding; /* [in_depth], the input's zero point */
    diagmem_channels_s8 output;
} diagmem_depthwise_conv_2d_s4_params;

static inline void diagmem_depthwise_conv_2d_s4_pixel(const diagmem_depthwise_conv_2d_s4_params *p,
                                                      const void *const *taps, int8_t *out) {
    const int32_t count = p->window.kernel_h * p->window.kernel_w;
    const uint8_t *weights = p->filter;
    for (int32_t c = 0; c < p->window.out_depth; ++c, weights += (count + 1) / 2) {
        int32_t sum = 0;
        for (int32_t t = 0; t < count; ++t) {
            sum += ((const int8_t *)taps[t])[c / p->multiplier] * diagmem_weight_s4(weights, t);
        }
        out[c] = diagmem_general_s8(&p->output, c, sum);
    }
}

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_depthwise_conv_2d_s4_row(const diagmem_depthwise_conv_2d_s4_params *p,
                                                    const void *const *rows, int8_t *out) {
    const diagmem_window *const w = &p->window;
    const void *taps[DIAGMEM_MAX_TAPS];
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        diagmem_find_taps(w, rows, diagmem_column(w, x), p->padding, sizeof *out, taps);
        diagmem_depthwise_conv_2d_s4_pixel(p, taps, out);
    }
}

static inline void diagmem_depthwise_conv_2d_s4(const diagmem_depthwise_conv_2d_s4_params *p, const int8_t *in,
                                                int8_t *out) {
    const diagmem_window *const w = &p->window;
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_depthwise_conv_2d_s4_row(p, rows, out + n * w->out_image + y * w->out_row);
        }
    }
}
