/* FULLY_CONNECTED on unsigned 8-bit integers. For each row, a block of outputs at a time: the row is read, then the
 * block is written. Sums are scaled in double precision. */
#include "../numerics/_dot_u8.h"

typedef struct {
    int32_t rows;
    int32_t inputs;
    int32_t outputs;
    const int8_t *filter; /* blocks of outputs */
    diagmem_channels_s8 output;
    int32_t filter_zero_point;
    float in_scale, filter_scale, out_scale;
} diagmem_fully_connected_u8_params;

static inline void diagmem_fully_connected_u8(const diagmem_fully_connected_u8_params *p, const uint8_t *in,
                                              uint8_t *out) {
    const double scale = (double)p->in_scale * (double)p->filter_scale / (double)p->out_scale;
    const diagmem_filter_u8 filter = {p->filter, p->filter_zero_point, scale};
    for (int32_t row = 0; row < p->rows; ++row, in += p->inputs, out += p->outputs) {
        const diagmem_run run = {in, p->inputs};
        diagmem_put_channels_u8(&run, 1, filter, p->inputs, &p->output, 0, p->outputs, out);
    }
}
