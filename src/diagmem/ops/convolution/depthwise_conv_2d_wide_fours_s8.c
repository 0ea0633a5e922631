/* DEPTHWISE_CONV_2D on 8-bit integers with an output channel for each input channel, four channels at a time, for any
 * sums and ranges: their windows are read, then their outputs are written. Channels that remain follow one by one. */
#include "../numerics/_channels_s8.h"
#include "../loops/_window.h"

typedef struct {
    diagmem_window window;
    const int8_t *filter;  /* [out_depth][kernel_h][kernel_w] */
    const int8_t *padding; /* [in_depth], the input's zero point */
    diagmem_channels_s8 output;
} diagmem_depthwise_conv_2d_wide_fours_s8_params;

static inline int32_t diagmem_depthwise_sum_s8(const void *const *taps, int32_t count, int32_t channel,
                                               const int8_t *weights) {
    int32_t sum = 0;
    for (int32_t t = 0; t < count; ++t) {
        sum += ((const int8_t *)taps[t])[channel] * weights[t];
    }
    return sum;
}

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_depthwise_conv_2d_wide_fours_s8_row(const diagmem_depthwise_conv_2d_wide_fours_s8_params *p,
                                                               const void *const *rows, int8_t *out) {
    const diagmem_window *const w = &p->window;
    const int32_t count = w->kernel_h * w->kernel_w;
    const void *taps[DIAGMEM_MAX_TAPS];
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        diagmem_find_taps(w, rows, diagmem_column(w, x), p->padding, sizeof *out, taps);
        int32_t together = 4;
        for (int32_t c = 0; c < w->out_depth; c += together) {
            int32_t sums[4];
            together = w->out_depth - c < 4 ? 1 : 4;
            for (int32_t i = 0; i < together; ++i) {
                const int32_t channel = c + i;
                sums[i] = diagmem_depthwise_sum_s8(taps, count, channel, p->filter + channel * count);
            }
            for (int32_t i = 0; i < together; ++i) {
                out[c + i] = diagmem_general_s8(&p->output, c + i, sums[i]);
            }
        }
    }
}

static inline void diagmem_depthwise_conv_2d_wide_fours_s8(const diagmem_depthwise_conv_2d_wide_fours_s8_params *p,
                                                           const int8_t *in, int8_t *out) {
    const diagmem_window *const w = &p->window;
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_depthwise_conv_2d_wide_fours_s8_row(p, rows, out + n * w->out_image + y * w->out_row);
        }
    }
}
