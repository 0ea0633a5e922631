/* CONV_2D on 8-bit integers with windows of one pixel, straight from the input: eight channels are computed from all
 * inputs of the pixel, then written. */
#include "../loops/_window.h"
#include "../numerics/_mve_dot_s8.h"

typedef struct {
    diagmem_window window; /* of one pixel, never outside the image */
    const int8_t *filter;  /* of each eight channels, as `_mve_dot_s8.h` wants them */
    diagmem_eights_s8 output;
} diagmem_conv_2d_point_mve_s8_params;

static inline void diagmem_conv_2d_point_mve_s8_row(const diagmem_conv_2d_point_mve_s8_params *p,
                                                    const void *const *rows, int8_t *out) {
    const diagmem_window *const w = &p->window;
    const int8_t *in = rows[0];
    for (int32_t x = w->out_width; x > 0; --x, in += w->stride_w * w->in_pitch, out += w->out_pitch) {
        diagmem_one_pixel_mve_s8(&p->output, p->filter, in, w->in_depth, out);
    }
}

static inline void diagmem_conv_2d_point_mve_s8(const diagmem_conv_2d_point_mve_s8_params *p, const int8_t *in,
                                                int8_t *out) {
    const diagmem_window *const w = &p->window;
    for (int32_t n = 0; n < w->batches; ++n) {
        for (int32_t y = 0; y < w->out_height; ++y) {
            const void *const row = in + n * w->in_image + y * w->stride_h * w->in_row;
            diagmem_conv_2d_point_mve_s8_row(p, &row, out + n * w->out_image + y * w->out_row);
        }
    }
}
