/* TRANSPOSE_CONV. For each output pixel and channel: all input pixels that reach it are read, then it is written. Input
 * i reaches output i * stride - pad + k with tap k of the filter. */
#include "../numerics/_channels_s16.h"
#include "../numerics/_channels_s8.h"
#include "../loops/_reach.h"
#include "../numerics/_real.h"

typedef struct {
    diagmem_window window;
    const int8_t *filter; /* [out_depth][kernel_h][kernel_w][in_depth] */
    int32_t zero_point;   /* of the input */
    diagmem_channels_s8 output;
} diagmem_transpose_conv_s8_params;

typedef struct {
    diagmem_window window;
    const int8_t *filter; /* 128 less than what they stand for */
    int32_t zero_point;
    diagmem_channels_s8 output;
    int32_t filter_zero_point;
} diagmem_transpose_conv_u8_params;

typedef struct {
    diagmem_window window;
    const int8_t *filter;
    diagmem_channels_s16 output;
} diagmem_transpose_conv_s16_params;

typedef struct {
    diagmem_window window;
    const float *filter;
    diagmem_channels_f32 output;
} diagmem_transpose_conv_f32_params;

/* `name`_row makes output row y from the input rows that reach it; `term` is what input x adds to a sum that meets
 * weight w, `result` makes an output channel c from the sum. */
#define DIAGMEM_TRANSPOSE_CONV(name, params, type, weight_type, sum_type, term, result)                               \
    static inline sum_type name##_sum(const params *p, const void *const *in, diagmem_reach rows,                    \
                                      diagmem_reach cols, int32_t origin) {                                          \
        const diagmem_window *const s = &p->window;                                                                  \
        sum_type sum = 0;                                                                                            \
        for (int32_t i = rows.first; i < rows.end; ++i) {                                                            \
            for (int32_t j = cols.first; j < cols.end; ++j) {                                                        \
                const type *const pixel = (const type *)in[i - rows.first] + j * s->in_pitch;                        \
                const int32_t tap = origin - i * s->stride_h * s->kernel_w - j * s->stride_w;                         \
                const weight_type *const weights = p->filter + tap * s->in_depth;                                    \
                for (int32_t c = 0; c < s->in_depth; ++c) {                                                          \
                    const type x = pixel[c];                                                                         \
                    const weight_type w = weights[c];                                                                \
                    sum += term;                                                                                     \
                }                                                                                                    \
            }                                                                                                        \
        }                                                                                                            \
        return sum;                                                                                                  \
    }                                                                                                                \
    static inline void name##_row(const params *p, const void *const *in, int32_t y, type *out) {                    \
        const diagmem_window *const s = &p->window;                                                                  \
        const diagmem_reach rows = diagmem_rows_to(s, y);                                                            \
        for (int32_t o = 0; o < s->out_width; ++o, out += s->out_pitch) {                                            \
            const diagmem_reach cols = diagmem_reach_of(o, s->pad_left, s->kernel_w, s->stride_w, s->in_width);      \
            const int32_t origin = (y + s->pad_top) * s->kernel_w + o + s->pad_left;                                 \
            for (int32_t c = 0; c < s->out_depth; ++c) {                                                             \
                const int32_t taps = c * s->kernel_h * s->kernel_w;                                                  \
                const sum_type sum = name##_sum(p, in, rows, cols, taps + origin);                                   \
                out[c] = result;                                                                                     \
            }                                                                                                        \
        }                                                                                                            \
    }                                                                                                                \
    static inline void name(const params *p, const type *in, type *out) {                                            \
        const diagmem_window *const s = &p->window;                                                                  \
        const void *rows[DIAGMEM_MAX_ROWS];                                                                          \
        for (int32_t n = 0; n < s->batches; ++n) {                                                                   \
            for (int32_t y = 0; y < s->out_height; ++y) {                                                            \
                const diagmem_reach reach = diagmem_rows_to(s, y);                                                   \
                for (int32_t i = reach.first; i < reach.end; ++i) {                                                  \
                    rows[i - reach.first] = in + n * s->in_image + i * s->in_row;                                    \
                }                                                                                                    \
                name##_row(p, rows, y, out + n * s->out_image + y * s->out_row);                                     \
            }                                                                                                        \
        }                                                                                                            \
    }

DIAGMEM_TRANSPOSE_CONV(diagmem_transpose_conv_s8, diagmem_transpose_conv_s8_params, int8_t, int8_t, int32_t,
                       (x - p->zero_point) * w, diagmem_general_s8(&p->output, c, sum))
DIAGMEM_TRANSPOSE_CONV(diagmem_transpose_conv_u8, diagmem_transpose_conv_u8_params, uint8_t, int8_t, int32_t,
                       (x - p->zero_point) * (w - p->filter_zero_point),
                       diagmem_general_u8(&p->output, c, diagmem_wrapping_add(sum, p->output.bias[c])))
DIAGMEM_TRANSPOSE_CONV(diagmem_transpose_conv_s16, diagmem_transpose_conv_s16_params, int16_t, int8_t, int64_t, x * w,
                       diagmem_finish_s16(&p->output, c, sum))
DIAGMEM_TRANSPOSE_CONV(diagmem_transpose_conv_f32, diagmem_transpose_conv_f32_params, float, float, float, x * w,
                       diagmem_clamp_f32(sum + p->output.bias[c], p->output.low, p->output.high))
