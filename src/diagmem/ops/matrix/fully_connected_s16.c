/* FULLY_CONNECTED on 16-bit integers with 8-bit weights. For each row, a block of outputs at a time: the row is read,
 * then the block is written. */
#include "../numerics/_dot_s16.h"

typedef struct {
    int32_t rows;
    int32_t inputs;
    int32_t outputs;
    const int8_t *filter; /* blocks of outputs */
    diagmem_channels_s16 output;
} diagmem_fully_connected_s16_params;

static inline void diagmem_fully_connected_s16(const diagmem_fully_connected_s16_params *p, const int16_t *in,
                                               int16_t *out) {
    for (int32_t row = 0; row < p->rows; ++row, in += p->inputs, out += p->outputs) {
        const diagmem_run run = {in, p->inputs};
        diagmem_put_channels_s16(&run, 1, p->filter, p->inputs, &p->output, 0, p->outputs, out);
    }
}
