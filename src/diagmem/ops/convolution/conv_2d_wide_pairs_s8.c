/* CONV_2D on 8-bit integers, two pixels at a time, for any weights, sums and ranges. */
#include "../numerics/_channels_s8.h"
#include "_pairs_s8.h"

typedef struct {
    diagmem_window window;
    diagmem_paired paired;
    const int8_t *filter; /* [out_depth][paired.size] */
    diagmem_channels_s8 output;
} diagmem_conv_2d_wide_pairs_s8_params;

DIAGMEM_IN_ORDER

/* The sum of one pixel, whose words lie `step` apart. */
static DIAGMEM_APART int32_t diagmem_wide_sum_s8(const diagmem_word *x, int32_t step, const int8_t *weights,
                                                 int32_t size) {
    int32_t sum = 0;
    for (const int8_t *const end = weights + size; weights != end; weights += 4, x += 2 * step) {
        const uint32_t four = diagmem_load(weights);
        sum = diagmem_both(sum, x[0], diagmem_even(four));
        sum = diagmem_both(sum, x[step], diagmem_odd(four));
    }
    return sum;
}

DIAGMEM_IN_ANY_ORDER

static DIAGMEM_APART void diagmem_conv_2d_wide_pairs_s8_put(const void *params, const diagmem_words *buffer,
                                                            int32_t pixels, int8_t *out) {
    const diagmem_conv_2d_wide_pairs_s8_params *const p = params;
    const diagmem_word *const x = (const diagmem_word *)buffer;
    const int32_t size = p->paired.size;
    for (int32_t c = 0; c < p->window.out_depth; ++c) {
        for (int32_t i = 0; i < pixels; ++i) {
            const int32_t sum = diagmem_wide_sum_s8(x + i, pixels, p->filter + c * size, size);
            out[c + i * p->window.out_pitch] = diagmem_general_s8(&p->output, c, sum);
        }
    }
}

static inline void diagmem_conv_2d_wide_pairs_s8_row(const diagmem_conv_2d_wide_pairs_s8_params *p,
                                                     const void *const *rows, int8_t *out, void *buffer) {
    diagmem_pairs_row(&p->window, &p->paired, rows, out, buffer, diagmem_conv_2d_wide_pairs_s8_put, p);
}

static inline void diagmem_conv_2d_wide_pairs_s8(const diagmem_conv_2d_wide_pairs_s8_params *p, const int8_t *in,
                                                 int8_t *out, void *buffer) {
    diagmem_pairs(&p->window, &p->paired, in, out, buffer, diagmem_conv_2d_wide_pairs_s8_put, p);
}
