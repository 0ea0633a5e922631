/* FULLY_CONNECTED on 8-bit integers over vectors of 16 inputs: eight outputs of a row are computed from all of its
 * inputs, then written. */
#include "../numerics/_mve_dot_s8.h"

typedef struct {
    int32_t rows;
    int32_t inputs;
    const int8_t *filter; /* of each eight outputs, as `_mve_dot_s8.h` wants them */
    diagmem_eights_s8 output;
} diagmem_fully_connected_mve_s8_params;

static inline void diagmem_fully_connected_mve_s8(const diagmem_fully_connected_mve_s8_params *p, const int8_t *in,
                                                  int8_t *out) {
    for (int32_t row = p->rows; row > 0; --row, in += p->inputs, out += p->output.channels) {
        diagmem_one_pixel_mve_s8(&p->output, p->filter, in, p->inputs, out);
    }
}
