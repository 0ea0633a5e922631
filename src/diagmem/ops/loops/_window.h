/* A window that slides over images, channels last. Elements between neighbouring images: in_image, rows: in_row,
 * pixels: in_pitch; likewise for the output. They are larger than the sizes tell where a tensor is part of another one.
 */
#ifndef DIAGMEM_WINDOW_H
#define DIAGMEM_WINDOW_H

#include <stddef.h>
#include <stdint.h>

#ifndef DIAGMEM_MAX_ROWS
#define DIAGMEM_MAX_ROWS 16 /* rows of the largest window */
#endif
#ifndef DIAGMEM_MAX_TAPS
#define DIAGMEM_MAX_TAPS 64 /* pixels of the largest window */
#endif

typedef struct {
    int32_t batches;
    int32_t in_height, in_width, in_depth;
    int32_t in_image, in_row, in_pitch;
    int32_t out_height, out_width, out_depth;
    int32_t out_image, out_row, out_pitch;
    int32_t kernel_h, kernel_w;
    int32_t stride_h, stride_w;
    int32_t dilation_h, dilation_w;
    int32_t pad_top, pad_left;
} diagmem_window;

/* The input rows under the window of output row y; NULL for those outside the image. `size`: bytes of an element. */
static inline void diagmem_find_rows(const diagmem_window *w, const void *image, size_t size, int32_t y,
                                     const void **rows) {
    const size_t row_size = (size_t)w->in_row * size;
    for (int32_t k = 0; k < w->kernel_h; ++k) {
        const int32_t row = y * w->stride_h - w->pad_top + k * w->dilation_h;
        rows[k] = row >= 0 && row < w->in_height ? (const char *)image + (size_t)row * row_size : NULL;
    }
}

/* The input column under the first tap of output column x; may be outside the image. */
static inline int32_t diagmem_column(const diagmem_window *w, int32_t x) {
    return x * w->stride_w - w->pad_left;
}

/* Whether all taps from `column` on lie inside the image. */
static inline int diagmem_columns_inside(const diagmem_window *w, int32_t column) {
    return column >= 0 && column + (w->kernel_w - 1) * w->dilation_w < w->in_width;
}

/* The pixels under the taps of the window at `column`; `padding` for those outside the image. */
static inline void diagmem_find_taps(const diagmem_window *w, const void *const *rows, int32_t column,
                                     const void *padding, size_t size, const void **taps) {
    for (int32_t k = 0; k < w->kernel_h; ++k) {
        const char *const row = rows[k];
        for (int32_t tap = 0; tap < w->kernel_w; ++tap) {
            const int32_t x = column + tap * w->dilation_w;
            const int is_inside = row != NULL && x >= 0 && x < w->in_width;
            *taps++ = is_inside ? row + (size_t)(x * w->in_pitch) * size : padding;
        }
    }
}

/* Input columns that lie inside the image. */
typedef struct {
    int32_t first, count;
} diagmem_columns;

/* Those under the window of output column x, its taps being neighbours. */
static inline diagmem_columns diagmem_columns_of(const diagmem_window *w, int32_t x) {
    const int32_t begin = diagmem_column(w, x);
    const int32_t end = begin + w->kernel_w;
    diagmem_columns found;
    found.first = begin > 0 ? begin : 0;
    found.count = (end < w->in_width ? end : w->in_width) - found.first;
    return found;
}

#endif
