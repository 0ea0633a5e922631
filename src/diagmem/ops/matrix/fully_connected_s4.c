/* FULLY_CONNECTED on 8-bit integers with 4-bit weights. For each row, a block of outputs at a time: the row is read,
 * then the block is written. */
#include "../numerics/_dot_s4.h"

typedef struct {
    int32_t rows;
    int32_t inputs;
    int32_t outputs;
    const uint8_t *filter; /* blocks of outputs */
    diagmem_channels_s8 output;
} diagmem_fully_connected_s4_params;

static inline void diagmem_fully_connected_s4(const diagmem_fully_connected_s4_params *p, const int8_t *in,
                                              int8_t *out) {
    for (int32_t row = 0; row < p->rows; ++row, in += p->inputs, out += p->outputs) {
        const diagmem_run run = {in, p->inputs};
        diagmem_put_channels_s4(&run, 1, p->filter, p->inputs, &p->output, 0, p->outputs, out);
    }
}
