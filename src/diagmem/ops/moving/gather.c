/* GATHER on elements of any type: slices of the input along an axis, picked by index. The output is written in order,
 * each element after it is read. An index outside the axis picks its nearest end. */
#include "../loops/_move.h"

typedef struct {
    int32_t element; /* bytes */
    int32_t batches; /* axes that indices and input share */
    int32_t rows;    /* input axes between those and the gathered one */
    int32_t size;    /* of the gathered axis */
    int32_t picks;   /* indices of each batch */
    int32_t run;     /* elements of a slice */
} diagmem_gather_params;

static inline void diagmem_gather(const diagmem_gather_params *p, const void *input, const int32_t *indices,
                                  void *output) {
    const int32_t slice = p->run * p->element;
    const unsigned char *in = input;
    unsigned char *out = output;
    for (int32_t n = 0; n < p->batches; ++n, indices += p->picks) {
        for (int32_t row = 0; row < p->rows; ++row, in += p->size * slice) {
            for (int32_t i = 0; i < p->picks; ++i) {
                int32_t index = indices[i] < p->size ? indices[i] : p->size - 1;
                index = index > 0 ? index : 0;
                out = diagmem_move(out, in + index * slice, p->element, p->run, p->element);
            }
        }
    }
}
