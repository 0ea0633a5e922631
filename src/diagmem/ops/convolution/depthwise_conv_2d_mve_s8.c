/* DEPTHWISE_CONV_2D on 8-bit integers with an output channel for each input channel, eight channels at a time: their
 * windows are read, then their outputs are written. The last ones may be fewer. */
#include "../loops/_window.h"
#include "../numerics/_mve.h"

typedef struct {
    diagmem_window window;
    const int8_t *padding; /* [in_depth], the input's zero point */
    const int8_t *filter;  /* [channels / 8, rounded up][kernel_h][kernel_w][8] */
    diagmem_eights_s8 output;
} diagmem_depthwise_conv_2d_mve_s8_params;

#if DIAGMEM_HAS_MVE

DIAGMEM_IN_ORDER

/* One tap of eight channels, inputs in `x`. */
#define DIAGMEM_TAP_OF_EIGHT                                                      \
    "vldrb.s16 %q[f], [%[w]], #8\n\t"                                             \
    "vmullb.s16 %q[y], %q[x], %q[f]\n\tvadd.i32 %q[even], %q[even], %q[y]\n\t"    \
    "vmullt.s16 %q[y], %q[x], %q[f]\n\tvadd.i32 %q[odd], %q[odd], %q[y]\n\t"

/* Three taps in a row, and on to the next eight channels. */
#define DIAGMEM_ROW_OF_EIGHT(row)                                                                     \
    "vldrb.s16 %q[x], [" row "], #8\n\t" DIAGMEM_TAP_OF_EIGHT                                         \
    "add %[at], " row ", %[second]\n\tvldrb.s16 %q[x], [%[at]]\n\t" DIAGMEM_TAP_OF_EIGHT             \
    "add %[at], %[at], %[step]\n\tvldrb.s16 %q[x], [%[at]]\n\t" DIAGMEM_TAP_OF_EIGHT

/* The channels from `first` on, any window. */
static DIAGMEM_APART void diagmem_eights_of_taps_s8(const diagmem_depthwise_conv_2d_mve_s8_params *p,
                                                    const void *const *taps, int32_t first, int8_t *out) {
    const int32_t count = p->window.kernel_h * p->window.kernel_w;
    const int32_t channels = p->output.channels;
    const int8_t *w = p->filter + first * count;
    const int32_t *t = p->output.eights + first / 8 * DIAGMEM_EIGHT_WORDS;
    for (int32_t c = first; c < channels; c += 8, t += DIAGMEM_EIGHT_WORDS) {
        const mve_pred16_t some = vctp16q((uint32_t)(channels - c));
        int32x4_t even = vldrwq_s32(t), odd = vldrwq_s32(t + 4);
        for (const void *const *tap = taps; tap != taps + count; ++tap) {
            const int16x8_t x = vldrbq_z_s16((const int8_t *)*tap + c, some);
            int16x8_t f;
            int32x4_t y;
            __asm__ volatile(
                DIAGMEM_TAP_OF_EIGHT
                : [even] "+w"(even), [odd] "+w"(odd), [w] "+l"(w), [f] "=&w"(f), [y] "=&w"(y)
                : [x] "w"(x)
                : "memory");
        }
        vstrbq_p_s16(out + c, diagmem_eight_rescaled(&p->output, t, even, odd), some);
    }
}

/* Whole eights of channels, for a window of 3x3 inside the image, whose rows go from `a`, `b` and `c` on. */
static DIAGMEM_APART void diagmem_eights_inside_s8(const diagmem_depthwise_conv_2d_mve_s8_params *p, const int8_t *a,
                                                   const int8_t *b, const int8_t *c, int8_t *out) {
    const int32_t step = p->window.dilation_w * p->window.in_pitch;
    const int32_t second = step - 8;
    const int8_t *w = p->filter;
    const int32_t *t = p->output.eights;
    for (int32_t left = p->output.channels >> 3; left > 0; --left) {
        int32x4_t even = vldrwq_s32(t), odd = vldrwq_s32(t + 4);
        const int8_t *at;
        int16x8_t x, f;
        int32x4_t y;
        __asm__ volatile(
            DIAGMEM_ROW_OF_EIGHT("%[a]") DIAGMEM_ROW_OF_EIGHT("%[b]") DIAGMEM_ROW_OF_EIGHT("%[c]")
            : [even] "+&w"(even), [odd] "+&w"(odd), [w] "+&l"(w), [a] "+&l"(a), [b] "+&l"(b), [c] "+&l"(c),
              [at] "=&l"(at), [x] "=&w"(x), [f] "=&w"(f), [y] "=&w"(y)
            : [step] "r"(step), [second] "r"(second)
            : "memory");
        vstrbq_s16(out, diagmem_eight_rescaled(&p->output, t, even, odd));
        t += DIAGMEM_EIGHT_WORDS;
        out += 8;
    }
}

DIAGMEM_IN_ANY_ORDER

#else

static inline void diagmem_eights_of_taps_s8(const diagmem_depthwise_conv_2d_mve_s8_params *p, const void *const *taps,
                                             int32_t first, int8_t *out) {
    const int32_t count = p->window.kernel_h * p->window.kernel_w;
    for (int32_t c = first; c < p->output.channels; c += 8) {
        int32_t sums[8] = {0};
        for (int32_t tap = 0; tap < count; ++tap) {
            for (int32_t i = 0; i < 8 && c + i < p->output.channels; ++i) {
                sums[i] += ((const int8_t *)taps[tap])[c + i] * p->filter[c * count + tap * 8 + i];
            }
        }
        diagmem_put_eight(&p->output, p->output.eights + c / 8 * DIAGMEM_EIGHT_WORDS, sums, p->output.channels - c,
                          out + c);
    }
}

#endif

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_depthwise_conv_2d_mve_s8_row(const diagmem_depthwise_conv_2d_mve_s8_params *p,
                                                        const void *const *rows, int8_t *out) {
    const diagmem_window *const w = &p->window;
    const void *taps[DIAGMEM_MAX_TAPS];
#if DIAGMEM_HAS_MVE
    const int32_t whole = w->out_depth & ~7;
    const int is_inside = DIAGMEM_MAX_ROWS > 2 && w->kernel_h == 3 && w->kernel_w == 3 && rows[0] != NULL &&
                          rows[1] != NULL && rows[2] != NULL;
#endif
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        const int32_t column = diagmem_column(w, x);
        int32_t done = 0;
#if DIAGMEM_HAS_MVE
        if (is_inside && diagmem_columns_inside(w, column)) {
            const int32_t at = column * w->in_pitch;
            diagmem_eights_inside_s8(p, (const int8_t *)rows[0] + at, (const int8_t *)rows[1] + at,
                                     (const int8_t *)rows[2] + at, out);
            done = whole;
        }
#endif
        if (done < w->out_depth) {
            diagmem_find_taps(w, rows, column, p->padding, sizeof *out, taps);
            diagmem_eights_of_taps_s8(p, taps, done, out);
        }
    }
}

static inline void diagmem_depthwise_conv_2d_mve_s8(const diagmem_depthwise_conv_2d_mve_s8_params *p, const int8_t *in,
                                                    int8_t *out) {
    const diagmem_window *const w = &p->window;
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_depthwise_conv_2d_mve_s8_row(p, rows, out + n * w->out_image + y * w->out_row);
        }
    }
}
