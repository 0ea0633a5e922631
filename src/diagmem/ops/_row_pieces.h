/* Tensors whose rows lie anywhere in the arena, and repeat themselves. */
#ifndef DIAGMEM_ROW_PIECES_H
#define DIAGMEM_ROW_PIECES_H

#include "_compiler.h"
#include "_rows.h"

#if defined(__GNUC__)
#define DIAGMEM_INLINE inline __attribute__((always_inline))
#else
#define DIAGMEM_INLINE inline
#endif

/* `rows` rows from `begin` on go over `period` places of a table, from `at` on, again and again; if they move, each
 * time as many bytes further on as the table says `period` entries later. */
typedef struct {
    uint16_t begin, rows, at, period, moves;
} diagmem_piece;

/* Each row is in one piece. */
typedef struct {
    int32_t height;
    const DIAGMEM_OFFSET *table;
    const diagmem_piece *others;
    diagmem_piece longest;
} diagmem_row_pieces;

/* Row r of a piece. All that is known of the longest when the code is compiled makes this as short as a table. */
static DIAGMEM_INLINE int32_t diagmem_place_in(const diagmem_piece *piece, const DIAGMEM_OFFSET *table, int32_t r) {
    const int32_t times = (r - piece->begin) / piece->period;
    const int32_t i = piece->at + r - piece->begin - times * piece->period;
    return (int32_t)table[i] + (piece->moves ? times * (int32_t)table[i + piece->period] : 0);
}

/* A row that is not in the longest piece. */
static DIAGMEM_NOINLINE int32_t diagmem_place_in_others(const diagmem_row_pieces *rows, int32_t r) {
    const diagmem_piece *piece = rows->others;
    while (r < piece->begin || r - piece->begin >= piece->rows) {
        ++piece;
    }
    return diagmem_place_in(piece, rows->table, r);
}

/* NULL where there is no such row. */
static DIAGMEM_INLINE void *diagmem_row_in_pieces(const diagmem_row_pieces *rows, void *arena, int32_t r) {
    const int32_t i = r - rows->longest.begin;
    if (i >= 0 && i < rows->longest.rows) {
        return (char *)arena + diagmem_place_in(&rows->longest, rows->table, r);
    }
    return r < 0 || r >= rows->height ? NULL : (char *)arena + diagmem_place_in_others(rows, r);
}

/* The rows under the window of output row y; NULL for those outside the image. */
static DIAGMEM_INLINE const void *const *diagmem_pieces_under(const diagmem_window *w, const diagmem_row_pieces *image,
                                                              void *arena, int32_t y, const void **rows) {
    const diagmem_piece *const piece = &image->longest;
    const int32_t first = y * w->stride_h - w->pad_top;
    int32_t i = first - piece->begin;
    if (i >= 0 && i + (w->kernel_h - 1) * w->dilation_h < piece->rows) {
        /* All of them in the longest piece: from one to the next without a division. */
        const DIAGMEM_OFFSET *const places = image->table + piece->at;
        int32_t times = i / piece->period;
        i -= times * piece->period;
        for (int32_t k = 0; k < w->kernel_h; ++k) {
            const int32_t further = piece->moves ? times * (int32_t)places[i + piece->period] : 0;
            rows[k] = (char *)arena + ((int32_t)places[i] + further);
            for (i += w->dilation_h; i >= piece->period; i -= piece->period) {
                ++times;
            }
        }
        return rows;
    }
    for (int32_t k = 0; k < w->kernel_h; ++k) {
        rows[k] = diagmem_row_in_pieces(image, arena, first + k * w->dilation_h);
    }
    return rows;
}

/* The rows that reach output row y of a transposed convolution, from the first on. */
static inline const void *const *diagmem_pieces_reaching(const diagmem_window *w, const diagmem_row_pieces *image,
                                                         void *arena, int32_t y, const void **rows) {
    const diagmem_reach reach = diagmem_rows_to(w, y);
    for (int32_t i = reach.first; i < reach.end; ++i) {
        rows[i - reach.first] = diagmem_row_in_pieces(image, arena, i);
    }
    return rows;
}

#endif
