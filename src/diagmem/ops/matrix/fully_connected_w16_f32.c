/* FULLY_CONNECTED on single precision with weights of half precision. For each row, a block of outputs at a time: the
 * row is read, then the block is written. */
#include "../numerics/_dot_w16_f32.h"

typedef struct {
    int32_t rows;
    int32_t inputs;
    int32_t outputs;
    const uint16_t *filter; /* blocks of outputs */
    diagmem_channels_f32 output;
} diagmem_fully_connected_w16_f32_params;

static inline void diagmem_fully_connected_w16_f32(const diagmem_fully_connected_w16_f32_params *p, const float *in,
                                                   float *out) {
    for (int32_t row = 0; row < p->rows; ++row, in += p->inputs, out += p->outputs) {
        const diagmem_run run = {in, p->inputs};
        diagmem_put_channels_w16_f32(&run, 1, p->filter, p->inputs, &p->output, 0, p->outputs, out);
    }
}
