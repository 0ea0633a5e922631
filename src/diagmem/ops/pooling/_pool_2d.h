/* What poolings of all kinds and types have in common. */
#ifndef DIAGMEM_POOL_2D_H
#define DIAGMEM_POOL_2D_H

#include "../loops/_window.h"

/* Defines `name`, which makes all rows of all images, each by `name`_row. */
#define DIAGMEM_ALL_ROWS(name, element)                                                                                \
    static inline void name(const name##_params *p, const element *in, element *out) {                                 \
        const diagmem_window *const w = &p->window;                                                                    \
        const void *rows[DIAGMEM_MAX_ROWS];                                                                            \
        for (int32_t n = 0; n < w->batches; ++n) {                                                                     \
            for (int32_t y = 0; y < w->out_height; ++y) {                                                              \
                diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);                                       \
                name##_row(p, rows, out + n * w->out_image + y * w->out_row);                                          \
            }                                                                                                          \
        }                                                                                                              \
    }

#endif
