/* A convolution's driver that computes two neighbouring pixels of a row together. The windows of both are read wholly,
 * into a buffer, before anything of either is written. The last pixel of an odd row is alone.
 *
 * The buffer holds a word of the first pixel and one of the second in turn, each with two inputs as 16-bit numbers. Of
 * the inputs in a row of the window, each four become the even ones, then the odd ones; two or three that remain become
 * the first two, and a last one is alone in its word. */
#ifndef DIAGMEM_PAIRS_S8_H
#define DIAGMEM_PAIRS_S8_H

#include "../loops/_window.h"
#include "../numerics/_dsp.h"

typedef struct {
    int32_t size;          /* inputs of a window in the buffer, a multiple of eight; what is more meets weights of 0 */
    const int8_t *padding; /* [in_depth], the input's zero point */
} diagmem_paired;

/* Computes all channels of two pixels, or of one, from the buffer. */
typedef void diagmem_put_pixels(const void *params, const diagmem_words *buffer, int32_t pixels, int8_t *out);

DIAGMEM_IN_ORDER

/* `count` inputs of one pixel, from `a` on. Returns where the next ones go. */
static DIAGMEM_APART diagmem_word *diagmem_widen_one(const int8_t *a, int32_t count, diagmem_word *to) {
    for (const int8_t *const end = a + (count & ~3); a != end; a += 4) {
        const uint32_t v = diagmem_load(a);
        *to++ = diagmem_even(v);
        *to++ = diagmem_odd(v);
    }
    if (count & 2) {
        *to++ = diagmem_lower_halves((uint32_t)a[0], (uint32_t)a[1]);
        a += 2;
    }
    if (count & 1) {
        *to++ = (uint32_t)(uint16_t)a[0];
    }
    return to;
}

/* The same of two pixels, unless there is no second one and `b` is NULL. */
static DIAGMEM_APART diagmem_word *diagmem_widen(const int8_t *a, const int8_t *b, int32_t count, diagmem_word *to) {
    if (b == NULL) {
        return diagmem_widen_one(a, count, to);
    }
    for (const int8_t *const end = a + (count & ~3); a != end;) {
        const uint32_t v = diagmem_load(a);
        const uint32_t u = diagmem_load(b);
        to[0] = diagmem_even(v);
        to[1] = diagmem_even(u);
        to[2] = diagmem_odd(v);
        to[3] = diagmem_odd(u);
        a += 4;
        b += 4;
        to += 4;
        DIAGMEM_KEEP(to);
        DIAGMEM_KEEP(b);
    }
    if (count & 2) {
        *to++ = diagmem_lower_halves((uint32_t)a[0], (uint32_t)a[1]);
        *to++ = diagmem_lower_halves((uint32_t)b[0], (uint32_t)b[1]);
        a += 2;
        b += 2;
    }
    if (count & 1) {
        *to++ = (uint32_t)(uint16_t)a[0];
        *to++ = (uint32_t)(uint16_t)b[0];
    }
    return to;
}

DIAGMEM_IN_ANY_ORDER

/* The window of a pixel. `is_solid`: the taps of a row are neighbours, and all inside the image. */
typedef struct {
    const void *const *rows;
    int32_t column;
    int is_solid;
} diagmem_seen;

static inline diagmem_seen diagmem_see(const diagmem_window *w, const void *const *rows, int32_t x) {
    const int32_t column = diagmem_column(w, x);
    const int is_solid = w->in_depth == w->in_pitch && w->dilation_w == 1 && diagmem_columns_inside(w, column);
    const diagmem_seen found = {rows, column, is_solid};
    return found;
}

/* A tap in row k of a window; `padding` outside the image. */
static inline const int8_t *diagmem_tap(const diagmem_window *w, const diagmem_seen *from, int32_t k, int32_t tap,
                                        const int8_t *padding) {
    const int8_t *const row = from->rows[k];
    const int32_t x = from->column + tap * w->dilation_w;
    return row != NULL && x >= 0 && x < w->in_width ? row + x * w->in_pitch : padding;
}

static inline int8_t *diagmem_copied(const int8_t *from, int32_t count, int8_t *to) {
    for (; count > 0; --count) {
        *to++ = *from++;
    }
    return to;
}

/* Row k of a window, side by side. Where pixels are neighbours, what lies inside the image is in one piece. */
static DIAGMEM_APART void diagmem_collect_row(const diagmem_window *w, const diagmem_seen *from, int32_t k,
                                              const int8_t *padding, int8_t *to) {
    const int8_t *const row = from->rows[k];
    int32_t tap = 0;
    while (tap < w->kernel_w) {
        const int32_t x = from->column + tap * w->dilation_w;
        const int is_inside = row != NULL && x >= 0 && x < w->in_width;
        const int is_piece = is_inside && w->dilation_w == 1 && w->in_pitch == w->in_depth;
        const int32_t left = w->kernel_w - tap;
        const int32_t taps = !is_piece ? 1 : left < w->in_width - x ? left : w->in_width - x;
        to = diagmem_copied(is_inside ? row + x * w->in_pitch : padding, taps * w->in_depth, to);
        tap += taps;
    }
}

/* Fills the buffer with two windows, or with one if `b` is NULL. Pixels whose channels come in fours are widened one by
 * one where a row of the window is not in one piece; of others such rows are first collected, behind the buffer. */
static DIAGMEM_APART void diagmem_fill_buffer(const diagmem_window *w, const diagmem_paired *how, const diagmem_seen *a,
                                              const diagmem_seen *b, diagmem_word *buffer) {
    const int32_t count = w->kernel_w * w->in_depth;
    const int is_solid = a->is_solid && (b == NULL || b->is_solid);
    int8_t *const first = (int8_t *)(buffer + how->size);
    int8_t *const second = b == NULL ? NULL : first + count;
    for (int32_t k = 0; k < w->kernel_h; ++k) {
        const int8_t *const row_a = a->rows[k];
        if (is_solid && row_a != NULL) {
            /* Pixels of a row have the same rows under them. */
            const int8_t *const other = b == NULL ? NULL : row_a + b->column * w->in_pitch;
            buffer = diagmem_widen(row_a + a->column * w->in_pitch, other, count, buffer);
        } else if (w->in_depth % 4 == 0) {
            for (int32_t tap = 0; tap < w->kernel_w; ++tap) {
                const int8_t *const other = b == NULL ? NULL : diagmem_tap(w, b, k, tap, how->padding);
                buffer = diagmem_widen(diagmem_tap(w, a, k, tap, how->padding), other, w->in_depth, buffer);
            }
        } else {
            diagmem_collect_row(w, a, k, how->padding, first);
            if (b != NULL) {
                diagmem_collect_row(w, b, k, how->padding, second);
            }
            buffer = diagmem_widen(first, second, count, buffer);
        }
    }
}

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_pairs_row(const diagmem_window *w, const diagmem_paired *how, const void *const *rows,
                                     int8_t *out, void *buffer, diagmem_put_pixels *put, const void *params) {
    const int is_point = w->kernel_h == 1 && w->kernel_w == 1 && w->in_depth % 4 == 0 && rows[0] != NULL &&
                         w->pad_left == 0 && diagmem_columns_inside(w, diagmem_column(w, w->out_width - 1));
    const int32_t step = w->stride_w * w->in_pitch;
    for (int32_t x = 0; x < w->out_width; x += 2, out += 2 * w->out_pitch) {
        const int32_t pixels = x + 1 < w->out_width ? 2 : 1;
        if (is_point) {
            const int8_t *const at = (const int8_t *)rows[0] + x * step;
            diagmem_widen(at, pixels == 2 ? at + step : NULL, w->in_depth, buffer);
        } else {
            const diagmem_seen a = diagmem_see(w, rows, x);
            const diagmem_seen b = diagmem_see(w, rows, x + 1);
            diagmem_fill_buffer(w, how, &a, pixels == 2 ? &b : NULL, buffer);
        }
        put(params, buffer, pixels, out);
    }
}

static inline void diagmem_pairs(const diagmem_window *w, const diagmem_paired *how, const int8_t *in, int8_t *out,
                                 void *buffer, diagmem_put_pixels *put, const void *params) {
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_pairs_row(w, how, rows, out + n * w->out_image + y * w->out_row, buffer, put, params);
        }
    }
}

#endif
