/* GATHER on elements of any type: slices of the input along an axis, picked by index. The output is written in order,
 * each element after it is read. An index outside the axis picks its nearest end. */
#include "../loops/_move.h"
#include "../numerics/_element.h"

typedef struct {
    int32_t element;    /* bytes */
    int32_t index_type; /* a type of _element.h */
    int32_t from_end;   /* what is added to an index below 0 */
    int32_t batches;    /* axes that indices and input share */
    int32_t rows;       /* input axes between those and the gathered one */
    int32_t size;       /* of the gathered axis */
    int32_t picks;      /* indices of each batch */
    int32_t run;        /* elements of a slice */
} diagmem_gather_params;

static inline void diagmem_gather(const diagmem_gather_params *p, const void *input, const void *indices,
                                  void *output) {
    const int32_t slice = p->run * p->element;
    const int32_t step = diagmem_element_bytes(p->index_type);
    const unsigned char *in = input;
    const unsigned char *from = indices;
    unsigned char *out = output;
    for (int32_t n = 0; n < p->batches; ++n, from += p->picks * step) {
        for (int32_t row = 0; row < p->rows; ++row, in += p->size * slice) {
            for (int32_t i = 0; i < p->picks; ++i) {
                const int32_t index = diagmem_index(from + i * step, p->index_type, p->size, p->from_end);
                out = diagmem_move(out, in + index * slice, p->element, p->run, p->element);
            }
        }
    }
}
