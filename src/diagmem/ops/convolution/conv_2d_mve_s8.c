/* CONV_2D on 8-bit integers, two pixels at a time, over vectors of 16 inputs: the windows of two neighbouring pixels
 * are read wholly, into a buffer, before anything of either is written. The last pixel of an odd row is alone. */
#include "../loops/_window.h"
#include "../numerics/_mve_dot_s8.h"

typedef struct {
    diagmem_window window;
    int32_t zero;         /* the input's zero point: what lies outside the image */
    int32_t size;         /* inputs of a window in the buffer, a multiple of 16; what is more meets weights of 0 */
    const int8_t *filter; /* of each eight channels, as `_mve_dot_s8.h` wants them */
    diagmem_eights_s8 output;
} diagmem_conv_2d_mve_s8_params;

/* The taps of a row of the window one by one; `row` is NULL outside the image. */
static DIAGMEM_APART void diagmem_gather_row_s8(const diagmem_conv_2d_mve_s8_params *p, const int8_t *row,
                                                int32_t column, int8_t *to) {
    const diagmem_window *const w = &p->window;
    for (int32_t tap = 0; tap < w->kernel_w; ++tap, column += w->dilation_w, to += w->in_depth) {
        if (row != NULL && column >= 0 && column < w->in_width) {
            diagmem_copy_s8(row + column * w->in_pitch, w->in_depth, to);
        } else {
            diagmem_fill_s8(p->zero, w->in_depth, to);
        }
    }
}

/* The window of output column x, side by side. */
static DIAGMEM_APART void diagmem_gather_s8(const diagmem_conv_2d_mve_s8_params *p, const void *const *rows, int32_t x,
                                     int8_t *to) {
    const diagmem_window *const w = &p->window;
    const int32_t column = diagmem_column(w, x);
    const int32_t count = w->kernel_w * w->in_depth;
    const int is_solid = w->in_depth == w->in_pitch && w->dilation_w == 1 && diagmem_columns_inside(w, column);
    for (int32_t k = 0; k < w->kernel_h; ++k, to += count) {
        if (is_solid && rows[k] != NULL) {
            diagmem_copy_s8((const int8_t *)rows[k] + column * w->in_pitch, count, to);
        } else {
            diagmem_gather_row_s8(p, rows[k], column, to);
        }
    }
}

/* One output row from the input rows under the window, NULL for those outside the image. */
static inline void diagmem_conv_2d_mve_s8_row(const diagmem_conv_2d_mve_s8_params *p, const void *const *rows,
                                              int8_t *out, void *buffer) {
    const diagmem_window *const w = &p->window;
    const int is_point = w->kernel_h == 1 && w->kernel_w == 1 && rows[0] != NULL && w->pad_left == 0 &&
                         diagmem_columns_inside(w, diagmem_column(w, w->out_width - 1));
    const int32_t step = w->stride_w * w->in_pitch;
    const int32_t size = p->size;
    int8_t *const line = buffer;
    int32_t x = 0;
    for (; x + 1 < w->out_width; x += 2, out += 2 * w->out_pitch) {
        if (is_point) {
            const int8_t *const at = (const int8_t *)rows[0] + x * step;
            diagmem_copy_s8(at, w->in_depth, line);
            diagmem_copy_s8(at + step, w->in_depth, line + size);
        } else {
            diagmem_gather_s8(p, rows, x, line);
            diagmem_gather_s8(p, rows, x + 1, line + size);
        }
        diagmem_two_pixels_mve_s8(&p->output, p->filter, line, line + size, size, out, w->out_pitch);
    }
    if (x < w->out_width) {
        diagmem_gather_s8(p, rows, x, line);
        diagmem_one_pixel_mve_s8(&p->output, p->filter, line, w->kernel_h * w->kernel_w * w->in_depth, out);
    }
}

static inline void diagmem_conv_2d_mve_s8(const diagmem_conv_2d_mve_s8_params *p, const int8_t *in, int8_t *out,
                                          void *buffer) {
    const diagmem_window *const w = &p->window;
    const void *rows[DIAGMEM_MAX_ROWS];
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            diagmem_find_rows(w, in + n * w->in_image, sizeof *in, y, rows);
            diagmem_conv_2d_mve_s8_row(p, rows, out + n * w->out_image + y * w->out_row, buffer);
        }
    }
}
