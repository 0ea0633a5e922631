/* MAX_POOL_2D for one type of element. For each output pixel and channel: the channel's window is read, then the output
 * is written. `number` holds the range that the activation leaves, `low` to `high`, and what is compared. */
#ifndef DIAGMEM_MAX_POOL_2D_H
#define DIAGMEM_MAX_POOL_2D_H

#include "_pool_2d.h"

#define DIAGMEM_MAX_POOL_2D(name, element, number)                                                                     \
    typedef struct {                                                                                                   \
        diagmem_window window;                                                                                         \
        number low;                                                                                                    \
        number high;                                                                                                   \
    } name##_params;                                                                                                   \
                                                                                                                       \
    /* One output row from the input rows under the window, NULL for those outside the image. */                       \
    static inline void name##_row(const name##_params *p, const void *const *rows, element *out) {                     \
        const diagmem_window *const w = &p->window;                                                                    \
        for (int32_t x = 0; x < w->out_width; ++x, out += w->out_pitch) {                                              \
            const diagmem_columns columns = diagmem_columns_of(w, x);                                                  \
            for (int32_t c = 0; c < w->out_depth; ++c) {                                                               \
                number largest = p->low;                                                                               \
                for (int32_t k = 0; k < w->kernel_h; ++k) {                                                            \
                    const element *const row = rows[k];                                                                \
                    for (int32_t tap = 0; row != NULL && tap < columns.count; ++tap) {                                 \
                        const number value = row[(columns.first + tap) * w->in_pitch + c];                             \
                        largest = value > largest ? value : largest;                                                   \
                    }                                                                                                  \
                }                                                                                                      \
                out[c] = (element)(largest > p->high ? p->high : largest);                                             \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    DIAGMEM_ALL_ROWS(name, element)

#endif
