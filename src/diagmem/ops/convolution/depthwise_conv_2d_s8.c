/* DEPTHWISE_CONV_2D on 8-bit integers. For each output pixel and channel: the channel's window is read, then the output
 * is written. */
#include "../numerics/_channels_s8.h"
#include "../loops/_window.h"

typedef struct {
    diagmem_window window;
    int32_t multiplier;    /* output channels for each input channel */
    const int8_t *filter;  /* [out_depth][kernel_h][kernel_w] */
    const int8_t *padding; /* [in_depth], the input's zero point */
    diagmem_channels_s8 output;
} diagmem_depthwise_conv_2d_s8_params;

/* One output pixel from any window. */
static inline void diagmem_depthwise_conv_2d_s8_pixel(const diagmem_depthwise_conv_2d_s8_params *p,
                                                      const void *const *taps, int8_t *out) {
    const diagmem_channels_s8 output = p->output;
    const int32_t multiplier = p->multiplier;
    const int32_t count = p->window.kernel_h * p->window.kernel_w;
    const int8_t *weights = p->filter;
    for (int32_t c = 0; c < p->window.out_depth; ++c, weights += count) {
        int32_t sum = 0;
        for (int32_t t = 0; t < count; ++t) {
            sum += ((const int8_t *)taps[t])[c / multiplier] * weights[t];
        }
        out[c] = diagmem_general_s8(&output, c, sum);
    }
}

/* One output pixel from a window of nine taps, with an output channel for each input channel. */
static inline void diagmem_depthwise_conv_2d_s8_nine(const diagmem_depthwise_conv_2d_s8_params *p,
                                                     const void *const *taps, int8_t *out) {
    const int8_t *const t0 = taps[0], *const t1 = taps[1], *const t2 = taps[2];
    const int8_t *const t3 = taps[3], *const t4 = taps[4], *const t5 = taps[5];
    const int8_t *const t6 = taps[6], *const t7 = taps[7], *const t8 = taps[8];
    const diagmem_channels_s8 output = p->output;
    const int8_t *w = p->filter;
    const int32_t depth = p->window.out_depth;
    for (int32_t c = 0; c < depth; ++c, w += 9) {
        const int32_t sum = t0[c] * w[0] + t1[c] * w[1] + t2[c] * w[2] + t3[c] * w[3] + t4[c] * w[4] +
                            t5[c] * w[5] + t6[c] * w[6] + t7[c] * w[7] + t8[c] * w[8];
        out[c] = diagmem_quick_s8(&output, c, sum);
    }
}

/* The same where the window is 3x3 and lies inside the image. */
static inline void diagmem_depthwise_conv_2d_s8_inside(const diagmem_depthwise_conv_2d_s8_params *p,
                                                       const void *const *rows, int32_t column, int8_t *out) {
    const diagmem_channels_s8 output = p->output;
    const int32_t step = p->window.dilation_w * p->window.in_pitch;
    const int8_t *a = (const int8_t *)rows[0] + column * p->window.in_pitch;
    const int8_t *b = (const int8_t *)rows[1] + column * p->window.in_pitch;
    const int8_t *c = (const int8_t *)rows[2] + column * p->window.in_pitch;
    const int8_t *w = p->filter;
    const int32_t depth = p->window.out_depth;
    for (int32_t i = 0; i < depth; ++i, ++a, ++b, ++c, w += 9) {
        const int32_t sum = a[0] * w[0] + a[step] * w[1] + a[2 * step] * w[2] + b[0] * w[3] +
                            b[step] * w[4] + b[2 * step] * w[5] + c[0] * w[6] + c[step] * w[7] + c[2 * step] * w[8];
        out[i] = diagmem_quick_s8(&output, i, sum);
    }
}

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_depthwise_conv_2d_s8_row(const diagmem_depthwise_conv_2d_s8_params *p,
                                                    const void *const *rows, int8_t *out) {
    const diagmem_window *const w = &p->window;
    const int is_simple = w->kernel_h == 3 && w->kernel_w == 3 && p->multiplier == 1 && diagmem_is_quick(&p->output);
    const int is_inside = is_simple && rows[0] != NULL && rows[1] != NULL && rows[2] != NULL;
    const void *taps[DIAGMEM_MAX_TAPS];
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        const int32_t column = diagmem_column(w, x);
        if (is_inside && diagmem_columns_inside(w, column)) {
            diagmem_depthwise_conv_2d_s8_inside(p, rows, column, out);
            continue;
        }
        diagmem_find_taps(w, rows, column, p->padding, sizeof *out, taps);
        if (is_simple) {
            diagmem_depthwise_conv_2d_s8_nine(p, taps, out);
        } else {
            diagmem_depthwise_conv_2d_s8_pixel(p, taps, out);
        }
    }
}

static inline void diagmem_depthwise_conv_2d_s8(const diagmem_depthwise_conv_2d_s8_params *p, const int8_t *in,
                                                int8_t *out) {
    const diagmem_window *const w = &p->window;
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_depthwise_conv_2d_s8_row(p, rows, out + n * w->out_image + y * w->out_row);
        }
    }
}
