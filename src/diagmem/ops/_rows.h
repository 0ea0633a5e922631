/* Tensors whose rows lie anywhere in the arena. */
#ifndef DIAGMEM_ROWS_H
#define DIAGMEM_ROWS_H

#include "loops/_reach.h"
#include "loops/_window.h"

#ifndef DIAGMEM_OFFSET
#define DIAGMEM_OFFSET uint32_t
#endif

/* Row r lies where the table says or, without one, at base + r % period * pitch, in bytes from the arena's start. */
typedef struct {
    int32_t height;
    const DIAGMEM_OFFSET *table;
    int32_t base, period, pitch;
} diagmem_rows;

/* NULL where there is no such row. */
static inline void *diagmem_row(const diagmem_rows *rows, void *arena, int32_t r) {
    if (r < 0 || r >= rows->height) {
        return NULL;
    }
    if (rows->table != NULL) {
        return (char *)arena + rows->table[r];
    }
    return (char *)arena + (rows->base + r % rows->period * rows->pitch);
}

/* The rows under the window of output row y; NULL for those outside the image. */
static inline const void *const *diagmem_rows_under(const diagmem_window *w, const diagmem_rows *image, void *arena,
                                                    int32_t y, const void **rows) {
    for (int32_t k = 0; k < w->kernel_h; ++k) {
        rows[k] = diagmem_row(image, arena, y * w->stride_h - w->pad_top + k * w->dilation_h);
    }
    return rows;
}

/* The rows that reach output row y of a transposed convolution, from the first on. */
static inline const void *const *diagmem_rows_reaching(const diagmem_window *w, const diagmem_rows *image, void *arena,
                                                       int32_t y, const void **rows) {
    const diagmem_reach reach = diagmem_rows_to(w, y);
    for (int32_t i = reach.first; i < reach.end; ++i) {
        rows[i - reach.first] = diagmem_row(image, arena, i);
    }
    return rows;
}

#endif
