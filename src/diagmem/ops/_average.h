/* Averages over windows that take their input one row at a time. */
#ifndef DIAGMEM_AVERAGE_H
#define DIAGMEM_AVERAGE_H

#include "_window.h"

/* The nearest integer, halves away from zero. */
static inline int32_t diagmem_rounded_mean(int32_t sum, int32_t count) {
    return (sum > 0 ? sum + count / 2 : sum - count / 2) / count;
}

/* Defines `name`, for an image that one row of windows covers: it takes the image's rows, one a turn. Totals are kept in
 * `sums`, one for each output, and the last turn makes the outputs: `result` makes one of `total` and `count`. */
#define DIAGMEM_AVERAGE_OF_ROWS(name, params, type, total_type, result)                                          \
    static inline void name(const params *p, int32_t turn, int32_t turns, const type *row, total_type *sums, type *out) {\
        const diagmem_window *const w = &p->window;                                                              \
        for (int32_t x = 0; x < w->out_width; ++x, sums += w->out_depth, out += w->out_pitch) {                  \
            const diagmem_columns columns = diagmem_columns_of(w, x);                                            \
            const int32_t count = columns.count * turns;                                                         \
            for (int32_t c = 0; c < w->out_depth; ++c) {                                                         \
                const type *in = row + columns.first * w->in_pitch + c;                                          \
                total_type total = turn == 0 ? 0 : sums[c];                                                      \
                for (int32_t tap = 0; tap < columns.count; ++tap, in += w->in_pitch) {                           \
                    total += *in;                                                                                \
                }                                                                                                \
                if (turn < turns - 1) {                                                                          \
                    sums[c] = total;                                                                             \
                } else {                                                                                         \
                    out[c] = (type)(result);                                                                     \
                }                                                                                                \
            }                                                                                                    \
        }                                                                                                        \
    }

#endif
