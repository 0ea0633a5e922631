/* CONV_2D on 8-bit integers, two pixels at a time, for any weights, sums and ranges. */
#include "../numerics/_channels_s8.h"
#include "_pairs_s8.h"

typedef struct {
    diagmem_window window;
    diagmem_paired paired;
    const int8_t *filter; /* [out_depth][paired.size] */
    diagmem_channels_s8 output;
} diagmem_conv_2d_wide_pairs_s8_params;

static DIAGMEM_APART void diagmem_conv_2d_wide_pairs_s8_put(const void *params, const diagmem_words *buffer,
                                                            int32_t pixels, int8_t *out) {
    const diagmem_conv_2d_wide_pairs_s8_params *const p = params;
    const int8_t *weights = p->filter;
    for (int32_t c = 0; c < p->window.out_depth; ++c) {
        const diagmem_words *x = buffer;
        int32_t first = p->output.bias[c];
        int32_t second = first;
        for (const int8_t *const end = weights + p->paired.size; weights != end; weights += 4, x += 2) {
            const uint32_t four = diagmem_load(weights);
            const uint32_t even = diagmem_even(four);
            const uint32_t odd = diagmem_odd(four);
            first = diagmem_both(first, diagmem_low(x[0]), even);
            second = diagmem_both(second, diagmem_high(x[0]), even);
            first = diagmem_both(first, diagmem_low(x[1]), odd);
            second = diagmem_both(second, diagmem_high(x[1]), odd);
        }
        out[c] = diagmem_general_s8(&p->output, c, first);
        if (pixels == 2) {
            out[c + p->window.out_pitch] = diagmem_general_s8(&p->output, c, second);
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
