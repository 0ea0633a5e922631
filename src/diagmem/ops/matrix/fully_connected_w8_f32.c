/* FULLY_CONNECTED on single precision with 8-bit weights. For each row, a block of outputs at a time: the row is read,
 * then the block is written. */
#include "../numerics/_dot_w8_f32.h"

typedef struct {
    int32_t rows;
    int32_t inputs;
    int32_t outputs;
    const int8_t *filter; /* blocks of outputs */
    const float *scales;  /* [outputs], of the filter */
    diagmem_channels_f32 output;
} diagmem_fully_connected_w8_f32_params;

static inline void diagmem_fully_connected_w8_f32(const diagmem_fully_connected_w8_f32_params *p, const float *in,
                                                  float *out) {
    for (int32_t row = 0; row < p->rows; ++row, in += p->inputs, out += p->outputs) {
        const diagmem_run run = {in, p->inputs};
        diagmem_put_channels_w8_f32(&run, 1, p->filter, p->inputs, p->scales, &p->output, 0, p->outputs, out);
    }
}
