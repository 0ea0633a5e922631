/* Averages over windows. */
#ifndef DIAGMEM_AVERAGE_H
#define DIAGMEM_AVERAGE_H

#include "_pool_2d.h"

/* The nearest integer, halves away from zero. */
static inline int32_t diagmem_rounded_mean(int32_t sum, int32_t count) {
    return (sum > 0 ? sum + count / 2 : sum - count / 2) / count;
}

static inline float diagmem_mean_f32(float sum, int32_t count) {
    return sum / (float)count;
}

/* Defines `name`, for an image that one row of windows covers: it takes the image's rows, one a turn. Totals are kept
 * in `sums`, one for each output, and the last turn makes the outputs: `result` makes one of `total` and `count`. */
#define DIAGMEM_AVERAGE_OF_ROWS(name, params, type, total_type, result)                                                \
    static inline void name(const params *p, int32_t turn, int32_t turns, const type *row, total_type *sums,           \
                            type *out) {                                                                               \
        const diagmem_window *const w = &p->window;                                                                    \
        for (int32_t x = 0; x < w->out_width; ++x, sums += w->out_depth, out += w->out_pitch) {                        \
            const diagmem_columns columns = diagmem_columns_of(w, x);                                                  \
            const int32_t count = columns.count * turns;                                                               \
            for (int32_t c = 0; c < w->out_depth; ++c) {                                                               \
                const type *in = row + columns.first * w->in_pitch + c;                                                \
                total_type total = turn == 0 ? 0 : sums[c];                                                            \
                for (int32_t tap = 0; tap < columns.count; ++tap, in += w->in_pitch) {                                 \
                    total += *in;                                                                                      \
                }                                                                                                      \
                if (turn < turns - 1) {                                                                                \
                    sums[c] = total;                                                                                   \
                } else {                                                                                               \
                    out[c] = (type)(result);                                                                           \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }

/* AVERAGE_POOL_2D for one type of element. For each output pixel and channel: the channel's window is read, then the
 * output is written. `number` holds sums, and the range that the activation leaves, `low` to `high`. */
#define DIAGMEM_AVERAGE_POOL_2D(name, element, number, mean, clamp)                                                    \
    typedef struct {                                                                                                   \
        diagmem_window window;                                                                                         \
        number low;                                                                                                    \
        number high;                                                                                                   \
    } name##_params;                                                                                                   \
                                                                                                                       \
    /* The mean of `width` pixels of each row that is inside the image, from element `start` on. */                    \
    static inline number name##_mean(const diagmem_window *w, const void *const *rows, int32_t start, int32_t width) { \
        number sum = 0;                                                                                                \
        int32_t count = 0;                                                                                             \
        for (int32_t k = 0; k < w->kernel_h; ++k) {                                                                    \
            const element *const row = rows[k];                                                                        \
            if (row != NULL) {                                                                                         \
                for (int32_t tap = 0; tap < width; ++tap) {                                                            \
                    sum += row[start + tap * w->in_pitch];                                                             \
                }                                                                                                      \
                count += width;                                                                                        \
            }                                                                                                          \
        }                                                                                                              \
        return mean(sum, count);                                                                                       \
    }                                                                                                                  \
                                                                                                                       \
    /* One output row from the input rows under the window, NULL for those outside the image. */                       \
    static inline void name##_row(const name##_params *p, const void *const *rows, element *out) {                     \
        const diagmem_window *const w = &p->window;                                                                    \
        for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {                                              \
            const diagmem_columns columns = diagmem_columns_of(w, x);                                                  \
            for (int32_t c = 0; c < w->out_depth; ++c) {                                                               \
                const int32_t start = columns.first * w->in_pitch + c;                                                 \
                out[c] = (element)clamp(name##_mean(w, rows, start, columns.count), p->low, p->high);                  \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    DIAGMEM_ALL_ROWS(name, element)                                                                                    \
                                                                                                                       \
    DIAGMEM_AVERAGE_OF_ROWS(name##_take, name##_params, element, number, clamp(mean(total, count), p->low, p->high))

#endif
