/* CONV_2D and FULLY_CONNECTED on 8-bit integers, where one row of windows covers the image, row by row: each turn takes
 * a row of the input into 256 times the sums, and the last one makes the outputs of them. Two outputs share weights. */
#include "_packed_dot_s8.h"

typedef struct {
    diagmem_window window; /* over a single row */
    int32_t taps;          /* rows under the window */
    int32_t apart;         /* rows from one of them to the next */
    const int8_t *padding; /* [in_depth], the input's zero point */
    int32_t is_positive;   /* the least output is that of all negative sums */
#ifdef DIAGMEM_TO_EVEN
    int32_t rounding;
#endif
    diagmem_eight_sums *eight; /* NULL where there are fewer channels */
    const int64_t *blocks;     /* for each row under the window blocks of eight channels; then the rest, in twos */
    int32_t step;              /* from one row's to the next one's */
    const int64_t *constants;
} diagmem_row_sums_packed_s8_params;

static inline void diagmem_row_sums_packed_s8_take(const diagmem_row_sums_packed_s8_params *p, int32_t turn,
                                                   int32_t turns, const int8_t *row, int32_t *sums, int8_t *out) {
    const diagmem_window *const window = &p->window;
    const void *const rows[1] = {row};
    const int32_t tap = turn / p->apart;
    const int32_t channels = window->out_depth;
    diagmem_run runs[DIAGMEM_MAX_TAPS];
    for (int32_t x = 0; x < window->out_width; ++x, sums += channels, out += window->out_pitch) {
        if (turn % p->apart == 0 && tap < p->taps) {
            const int32_t column = diagmem_column(window, x);
            const diagmem_run *const last =
                runs + diagmem_find_runs(window, rows, column, 0, window->in_depth, p->padding, 1, runs);
            const diagmem_words *w = (const diagmem_words *)(p->blocks + tap * p->step);
            int32_t more[8];
            for (int32_t c = 0; c < channels; c += 8) {
                const int32_t together = channels - c < 8 ? channels - c : 8;
                if (together == 8) {
                    w = p->eight(runs, last, w, more);
                }
                for (int32_t i = 0; together < 8 && i < together; i += 2) {
                    w = diagmem_dot_two_s8(runs, last, w, more + i);
                }
                for (int32_t i = 0; i < together; ++i) {
                    sums[c + i] = turn == 0 ? more[i] : (int32_t)((uint32_t)sums[c + i] + (uint32_t)more[i]);
                }
            }
        }
        const diagmem_word *k = (const diagmem_word *)p->constants;
        for (int32_t i = 0; turn == turns - 1 && i < channels; ++i, k += 3) {
            const int32_t m = (int32_t)k[0], addend = (int32_t)k[1], shift = (int32_t)k[2];
#ifdef DIAGMEM_TO_EVEN
            if (p->rounding == DIAGMEM_ROUNDED_TO_EVEN) {
                out[i] = DIAGMEM_EITHER(sums[i], m, addend, shift);
                continue;
            }
#endif
            out[i] = p->is_positive ? DIAGMEM_POSITIVE(sums[i], m, addend, shift)
                                    : DIAGMEM_ANY_SIGN(sums[i], m, addend, shift);
        }
    }
}
