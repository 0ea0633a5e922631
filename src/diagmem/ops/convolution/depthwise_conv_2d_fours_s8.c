/* DEPTHWISE_CONV_2D on 8-bit integers with an output channel for each input channel, four channels at a time: their
 * windows are read, then their outputs are written. Channels that remain follow one by one.
 *
 * Weights are 16-bit numbers, those of two taps in a word. A block of four channels has sums to start from, for each
 * two taps a word for each channel, of a last tap two words (channels 0 and 2, 1 and 3), then for each channel a
 * multiplier, an addend and a shift. Where one shift is that of all channels, weights and starts are 256-fold, and for
 * each channel there is only a multiplier. */
#include "../numerics/_packed_s8.h"
#include "../loops/_window.h"

/* Makes the channels from `out` to `stop`, a multiple of four of them, from a window of 3x3 that lies inside the image:
 * its rows from `x`, `y` and `z` on, its columns `step` apart. */
typedef void diagmem_fours_inside(const int8_t *x, const int8_t *y, const int8_t *z, int32_t step,
                                  const diagmem_words *w, int8_t *out, const int8_t *stop);

/* The same from any `count` of taps. */
typedef void diagmem_fours_taps(const void *const *taps, int32_t count, const diagmem_words *w, int8_t *out,
                                const int8_t *stop);

struct diagmem_fours_params;

/* Makes the channels from `first` on, one after the other. */
typedef void diagmem_fours_rest(const struct diagmem_fours_params *p, const void *const *taps, int32_t count,
                                int32_t first, int8_t *out);

typedef struct diagmem_fours_params {
    diagmem_window window;
    int32_t is_positive;          /* the least output is that of all negative sums */
#ifdef DIAGMEM_TO_EVEN
    int32_t rounding;
#endif
    diagmem_fours_inside *inside; /* NULL unless windows are 3x3 */
    diagmem_fours_taps *taps;
    const int8_t *padding; /* [in_depth], the input's zero point */
    const int64_t *blocks; /* of four channels */
    diagmem_fours_rest *ones; /* NULL where all channels come in fours: then no code for others is needed */
    const int32_t *rest;   /* of each further channel a bias, weights, a multiplier, an addend and a shift */
} diagmem_depthwise_conv_2d_fours_s8_params;

DIAGMEM_IN_ORDER

/* Two taps of four channels. */
#define DIAGMEM_TWO_TAPS(first, second)                              \
    do {                                                             \
        const uint32_t tap = diagmem_load(first);                    \
        const uint32_t next = diagmem_load(second);                  \
        const uint32_t low = diagmem_lower_halves(tap, next);        \
        const uint32_t high = diagmem_upper_halves(tap, next);       \
        uint32_t v, u;                                               \
        DIAGMEM_TAKE(v, u, w);                                       \
        a = diagmem_both(a, diagmem_even(low), v);                   \
        b = diagmem_both(b, diagmem_odd(low), u);                    \
        DIAGMEM_TAKE(v, u, w);                                       \
        c = diagmem_both(c, diagmem_even(high), v);                  \
        d = diagmem_both(d, diagmem_odd(high), u);                   \
    } while (0)

#define DIAGMEM_LAST_TAP(last)                              \
    do {                                                    \
        const uint32_t tap = diagmem_load(last);            \
        const uint32_t even = diagmem_even(tap);            \
        const uint32_t odd = diagmem_odd(tap);              \
        uint32_t v, u;                                      \
        DIAGMEM_TAKE(v, u, w);                              \
        a = diagmem_lower(a, even, v);                      \
        c = diagmem_upper(c, even, v);                      \
        b = diagmem_lower(b, odd, u);                       \
        d = diagmem_upper(d, odd, u);                       \
    } while (0)

#define DIAGMEM_PUT_CHANNEL(i, sum, requantised)                                                                   \
    do {                                                                                                           \
        const int32_t x = diagmem_times_256(sum);                                                                  \
        out[i] = requantised(x, (int32_t)k[3 * (i)], (int32_t)k[3 * (i) + 1], (int32_t)k[3 * (i) + 2]);            \
    } while (0)

#define DIAGMEM_PUT_FOUR(requantised)                          \
    do {                                                       \
        const diagmem_word *const k = (const diagmem_word *)w; \
        DIAGMEM_PUT_CHANNEL(0, a, requantised);                \
        DIAGMEM_PUT_CHANNEL(1, b, requantised);                \
        DIAGMEM_PUT_CHANNEL(2, c, requantised);                \
        DIAGMEM_PUT_CHANNEL(3, d, requantised);                \
        w += 6;                                                \
    } while (0)

#define DIAGMEM_PUT_FOUR_BY(put, shift)     \
    do {                                    \
        uint32_t m, n;                      \
        DIAGMEM_TAKE(m, n, w);              \
        out[0] = put(a, (int32_t)m, shift); \
        out[1] = put(b, (int32_t)n, shift); \
        DIAGMEM_TAKE(m, n, w);              \
        out[2] = put(c, (int32_t)m, shift); \
        out[3] = put(d, (int32_t)n, shift); \
    } while (0)

#define DIAGMEM_PUT_FOUR_FITTED(shift) DIAGMEM_PUT_FOUR_BY(DIAGMEM_FITTED, shift)

#define DIAGMEM_FOUR_SUMS                                                       \
    int32_t a = (int32_t)diagmem_low(w[0]), b = (int32_t)diagmem_high(w[0]);    \
    int32_t c = (int32_t)diagmem_low(w[1]), d = (int32_t)diagmem_high(w[1]);    \
    w += 2

/* Defines `name`_inside and `name`_taps. */
#define DIAGMEM_FOUR_CHANNELS(name, put, how)                                                                          \
    static DIAGMEM_APART void name##_inside(const int8_t *x, const int8_t *y, const int8_t *z, int32_t step,           \
                                            const diagmem_words *w, int8_t *out, const int8_t *stop) {                 \
        do {                                                                                                           \
            DIAGMEM_KEEP(step);                                                                                        \
            DIAGMEM_FOUR_SUMS;                                                                                         \
            DIAGMEM_TWO_TAPS(x, x + step);                                                                             \
            DIAGMEM_TWO_TAPS(x + 2 * step, y);                                                                         \
            DIAGMEM_TWO_TAPS(y + step, y + 2 * step);                                                                  \
            DIAGMEM_TWO_TAPS(z, z + step);                                                                             \
            DIAGMEM_LAST_TAP(z + 2 * step);                                                                            \
            put(how);                                                                                                  \
            DIAGMEM_KEEP(w);                                                                                           \
            out += 4;                                                                                                  \
            x += 4;                                                                                                    \
            y += 4;                                                                                                    \
            z += 4;                                                                                                    \
        } while (out != stop);                                                                                         \
    }                                                                                                                  \
                                                                                                                       \
    static DIAGMEM_APART void name##_taps(const void *const *taps, int32_t count, const diagmem_words *w, int8_t *out, \
                                          const int8_t *stop) {                                                        \
        int32_t i = 0;                                                                                                 \
        do {                                                                                                           \
            DIAGMEM_FOUR_SUMS;                                                                                         \
            for (int32_t t = 0; t < count - 1; t += 2) {                                                               \
                DIAGMEM_TWO_TAPS((const int8_t *)taps[t] + i, (const int8_t *)taps[t + 1] + i);                        \
            }                                                                                                          \
            if (count & 1) {                                                                                           \
                DIAGMEM_LAST_TAP((const int8_t *)taps[count - 1] + i);                                                 \
            }                                                                                                          \
            put(how);                                                                                                  \
            DIAGMEM_KEEP(w);                                                                                           \
            out += 4;                                                                                                  \
            i += 4;                                                                                                    \
        } while (out != stop);                                                                                         \
    }

DIAGMEM_FOUR_CHANNELS(diagmem_fitted_8_fours_s8, DIAGMEM_PUT_FOUR_FITTED, 8)
DIAGMEM_FOUR_CHANNELS(diagmem_fitted_10_fours_s8, DIAGMEM_PUT_FOUR_FITTED, 10)
DIAGMEM_FOUR_CHANNELS(diagmem_fitted_12_fours_s8, DIAGMEM_PUT_FOUR_FITTED, 12)
DIAGMEM_FOUR_CHANNELS(diagmem_fitted_14_fours_s8, DIAGMEM_PUT_FOUR_FITTED, 14)
#ifdef DIAGMEM_TO_EVEN
/* Blocks with channels that must be rounded have an odd second multiplier. */
#define DIAGMEM_PUT_FOUR_MIXED(shift)                           \
    do {                                                        \
        if (diagmem_high(w[0]) & 1u) {                           \
            DIAGMEM_PUT_FOUR_BY(DIAGMEM_MIXED_B, shift); \
        } else {                                                \
            DIAGMEM_PUT_FOUR_FITTED(shift);                     \
        }                                                       \
    } while (0)

DIAGMEM_FOUR_CHANNELS(diagmem_mixed_8_fours_s8, DIAGMEM_PUT_FOUR_MIXED, 8)
DIAGMEM_FOUR_CHANNELS(diagmem_mixed_10_fours_s8, DIAGMEM_PUT_FOUR_MIXED, 10)
DIAGMEM_FOUR_CHANNELS(diagmem_mixed_12_fours_s8, DIAGMEM_PUT_FOUR_MIXED, 12)
DIAGMEM_FOUR_CHANNELS(diagmem_mixed_14_fours_s8, DIAGMEM_PUT_FOUR_MIXED, 14)
#endif
DIAGMEM_FOUR_CHANNELS(diagmem_positive_fours_s8, DIAGMEM_PUT_FOUR, DIAGMEM_POSITIVE)
DIAGMEM_FOUR_CHANNELS(diagmem_any_fours_s8, DIAGMEM_PUT_FOUR, DIAGMEM_ANY_SIGN)

/* The channels from `first` on that fill no block, one after the other. */
static DIAGMEM_APART void diagmem_fours_rest_s8(const diagmem_depthwise_conv_2d_fours_s8_params *p,
                                                const void *const *taps, int32_t count, int32_t first, int8_t *out) {
    const int32_t *w = p->rest;
    for (int32_t channel = first; channel < p->window.out_depth; ++channel, w += count + 4) {
        int32_t sum = w[0];
        for (int32_t t = 0; t < count; ++t) {
            sum += ((const int8_t *)taps[t])[channel] * w[t + 1];
        }
        const int32_t x = diagmem_times_256(sum);
        const int32_t *const k = w + count + 1;
#ifdef DIAGMEM_TO_EVEN
        if (p->rounding == DIAGMEM_ROUNDED_TO_EVEN) {
            out[channel] = DIAGMEM_EITHER(x, k[0], k[1], k[2]);
            continue;
        }
#endif
        out[channel] = p->is_positive ? DIAGMEM_POSITIVE(x, k[0], k[1], k[2]) : DIAGMEM_ANY_SIGN(x, k[0], k[1], k[2]);
    }
}

DIAGMEM_IN_ANY_ORDER

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_depthwise_conv_2d_fours_s8_row(const diagmem_depthwise_conv_2d_fours_s8_params *p,
                                                          const void *const *rows, int8_t *out) {
    const diagmem_window *const w = &p->window;
    const int32_t whole = w->out_depth & ~3;
    const int32_t count = w->kernel_h * w->kernel_w;
    const int is_inside = p->inside != NULL && rows[0] != NULL && rows[1] != NULL && rows[2] != NULL;
    const diagmem_words *const blocks = (const diagmem_words *)p->blocks;
    const void *taps[DIAGMEM_MAX_TAPS];
    for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {
        const int32_t column = diagmem_column(w, x);
        if (is_inside && diagmem_columns_inside(w, column)) {
            const int32_t at = column * w->in_pitch;
            const int8_t *const a = (const int8_t *)rows[0] + at;
            const int8_t *const b = (const int8_t *)rows[1] + at;
            const int8_t *const c = (const int8_t *)rows[2] + at;
            p->inside(a, b, c, w->dilation_w * w->in_pitch, blocks, out, out + whole);
            continue;
        }
        diagmem_find_taps(w, rows, column, p->padding, sizeof *out, taps);
        if (whole > 0) {
            p->taps(taps, count, blocks, out, out + whole);
        }
        if (whole < w->out_depth) {
            p->ones(p, taps, count, whole, out);
        }
    }
}

static inline void diagmem_depthwise_conv_2d_fours_s8(const diagmem_depthwise_conv_2d_fours_s8_params *p,
                                                      const int8_t *in, int8_t *out) {
    const diagmem_window *const w = &p->window;
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_depthwise_conv_2d_fours_s8_row(p, rows, out + n * w->out_image + y * w->out_row);
        }
    }
}
