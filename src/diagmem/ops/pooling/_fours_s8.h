/* Poolings of 8-bit integers, four channels of a pixel at a time: their windows are read, then their outputs are
 * written. Channels that remain follow one by one. */
#ifndef DIAGMEM_POOLING_FOURS_S8_H
#define DIAGMEM_POOLING_FOURS_S8_H

#include "../numerics/_dsp.h"
#include "../numerics/_fixed_point.h"
#include "_pool_2d.h"

/* Defines `name`_row, one output row from the input rows under the window, NULL for those outside the image; and `name`
 * of all rows. `fours` and `one` make the outputs of four channels and of one from their first input in a row. */
#define DIAGMEM_POOL_FOURS(name, fours, one)                                                                           \
    static inline void name##_row(const name##_params *p, const void *const *rows, int8_t *out) {                      \
        const diagmem_window *const w = &p->window;                                                                    \
        for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {                                              \
            const diagmem_columns columns = diagmem_columns_of(w, x);                                                  \
            const int32_t start = columns.first * w->in_pitch;                                                         \
            int32_t c = 0;                                                                                             \
            for (; c < (w->out_depth & ~3); c += 4) {                                                                  \
                fours(p, rows, start + c, columns.count, out + c);                                                     \
            }                                                                                                          \
            for (; c < w->out_depth; ++c) {                                                                            \
                out[c] = one(p, rows, start + c, columns.count);                                                       \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    DIAGMEM_ALL_ROWS(name, int8_t)

#endif
