/* DEPTHWISE_CONV_2D on single precision with an output channel for each input channel, for floating-point units that
 * multiply and add in one instruction and round in between: the same bits as plain C. Eight channels at a time: their
 * windows are read, then their outputs are written. The last ones may be fewer. */
#include "../loops/_window.h"
#include "../numerics/_dsp.h"
#include "../numerics/_real.h"

typedef struct {
    diagmem_window window;
    const float *filter;  /* of each eight channels, or those that remain, [kernel_h][kernel_w][channel] */
    const float *padding; /* [in_depth], zeros */
    diagmem_channels_f32 output;
} diagmem_depthwise_conv_2d_vfp_f32_params;

/* The sums of eight channels, from `channel` on. */
static DIAGMEM_APART void diagmem_eight_taps_vfp_f32(const void *const *taps, int32_t count, int32_t channel,
                                                     const float *w, float *sums) {
    float a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
    for (const void *const *const end = taps + count; taps != end; ++taps) {
        const float *x = (const float *)*taps + channel;
#if defined(__ARM_FP) && (__ARM_FP & 4) && defined(__GNUC__)
        __asm__(
            "vldmia %[x], {s24-s31}\n\tvldmia %[w]!, {s16-s23}\n\t"
            "vmla.f32 %[a], s24, s16\n\tvmla.f32 %[b], s25, s17\n\tvmla.f32 %[c], s26, s18\n\t"
            "vmla.f32 %[d], s27, s19\n\tvmla.f32 %[e], s28, s20\n\tvmla.f32 %[f], s29, s21\n\t"
            "vmla.f32 %[g], s30, s22\n\tvmla.f32 %[h], s31, s23"
            : [w] "+r"(w), [a] "+t"(a), [b] "+t"(b), [c] "+t"(c), [d] "+t"(d), [e] "+t"(e), [f] "+t"(f), [g] "+t"(g),
              [h] "+t"(h)
            : [x] "r"(x)
            : "s16", "s17", "s18", "s19", "s20", "s21", "s22", "s23", "s24", "s25", "s26", "s27", "s28", "s29", "s30",
              "s31", "memory");
#else
        a += x[0] * w[0], b += x[1] * w[1], c += x[2] * w[2], d += x[3] * w[3];
        e += x[4] * w[4], f += x[5] * w[5], g += x[6] * w[6], h += x[7] * w[7];
        w += 8;
#endif
    }
    sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d, sums[4] = e, sums[5] = f, sums[6] = g, sums[7] = h;
}

/* The sums of fewer channels. */
static DIAGMEM_APART void diagmem_few_taps_vfp_f32(const void *const *taps, int32_t count, int32_t channel,
                                                   int32_t channels, const float *w, float *sums) {
    for (int32_t i = 0; i < channels; ++i) {
        float sum = 0;
        for (int32_t tap = 0; tap < count; ++tap) {
            sum += ((const float *)taps[tap])[channel + i] * w[tap * channels + i];
        }
        sums[i] = sum;
    }
}

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_depthwise_conv_2d_vfp_f32_row(const diagmem_depthwise_conv_2d_vfp_f32_params *p,
                                                         const void *const *rows, float *out) {
    const diagmem_window *const w = &p->window;
    const diagmem_channels_f32 output = p->output;
    const int32_t count = w->kernel_h * w->kernel_w;
    const void *taps[DIAGMEM_MAX_TAPS];
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        diagmem_find_taps(w, rows, diagmem_column(w, x), p->padding, sizeof *out, taps);
        for (int32_t c = 0; c < w->out_depth; c += 8) {
            const int32_t together = w->out_depth - c < 8 ? w->out_depth - c : 8;
            float sums[8];
            if (together == 8) {
                diagmem_eight_taps_vfp_f32(taps, count, c, p->filter + c * count, sums);
            } else {
                diagmem_few_taps_vfp_f32(taps, count, c, together, p->filter + c * count, sums);
            }
            for (int32_t i = 0; i < together; ++i) {
                out[c + i] = diagmem_clamp_f32(sums[i] + output.bias[c + i], output.low, output.high);
            }
        }
    }
}

static inline void diagmem_depthwise_conv_2d_vfp_f32(const diagmem_depthwise_conv_2d_vfp_f32_params *p, const float *in,
                                                     float *out) {
    const diagmem_window *const w = &p->window;
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_depthwise_conv_2d_vfp_f32_row(p, rows, out + n * w->out_image + y * w->out_row);
        }
    }
}
