/* FULLY_CONNECTED on 8-bit integers, eight outputs at a time, with weights that two outputs share. For each row and
 * block of outputs the row is read, then the block is written. */
#include "../numerics/_packed_dot_s8.h"

typedef struct {
    int32_t rows;
    int32_t inputs;
    diagmem_packed_s8 output;
} diagmem_fully_connected_packed_s8_params;

static inline void diagmem_fully_connected_packed_s8(const diagmem_fully_connected_packed_s8_params *p,
                                                     const int8_t *in, int8_t *out) {
    for (int32_t row = 0; row < p->rows; ++row, in += p->inputs, out += p->output.channels) {
        const diagmem_run run = {in, p->inputs};
        diagmem_put_packed_s8(&run, 1, &p->output, out);
    }
}
