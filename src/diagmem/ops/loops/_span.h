/* Some pixels of what a window makes, a stretch within a row at a time: the kernel's row function makes them as if its
 * output had no others. */
#ifndef DIAGMEM_SPAN_H
#define DIAGMEM_SPAN_H

#include "_window.h"

/* Where output pixel `pixel` lies, counted row by row and image by image: elements from the output's start. */
static inline int32_t diagmem_pixel_at(const diagmem_window *w, int32_t pixel) {
    const int32_t row = pixel / w->out_width;
    return row / w->out_height * w->out_image + row % w->out_height * w->out_row + pixel % w->out_width * w->out_pitch;
}

/* All rows that there are begin so many bytes further on. */
static inline void diagmem_move_rows(const diagmem_window *w, int32_t bytes, const void **rows) {
    for (int32_t k = 0; k < w->kernel_h; ++k) {
        rows[k] = rows[k] == NULL ? NULL : (const char *)rows[k] + bytes;
    }
}

/* The window of `count` output columns from x on, and where their part of the input rows begins. `size`: bytes of an
 * input element; `part`: a copy of `w`. */
static inline void diagmem_narrow_row(const diagmem_window *w, size_t size, int32_t x, int32_t count,
                                      diagmem_window *part, const void **rows) {
    const int32_t column = diagmem_column(w, x);
    const int32_t skipped = column < 0 ? 0 : column < w->in_width ? column : w->in_width;
    diagmem_move_rows(w, skipped * w->in_pitch * (int32_t)size, rows);
    part->out_width = count;
    part->in_width = w->in_width - skipped;
    part->pad_left = skipped - column;
}

/* The window and the input rows of the output pixels from `first` to the end of their row, or to `end`. Returns where
 * that is. */
static inline int32_t diagmem_narrow(const diagmem_window *w, const void *in, size_t size, int32_t first, int32_t end,
                                     diagmem_window *part, const void **rows) {
    const int32_t row = first / w->out_width;
    const int32_t x = first - row * w->out_width;
    const int32_t left = w->out_width - x < end - first ? w->out_width - x : end - first;
    const char *const image = (const char *)in + (size_t)(row / w->out_height * w->in_image) * size;
    diagmem_find_rows(w, image, size, row % w->out_height, rows);
    diagmem_narrow_row(w, size, x, left, part, rows);
    return first + left;
}

#endif
