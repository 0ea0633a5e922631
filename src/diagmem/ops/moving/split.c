/* SPLIT, SPLIT_V, UNPACK on elements of any type: each row of the input is dealt out to the outputs in turn. The input
 * is read in order, and each element is written before the next one is read. */
#include "../loops/_move.h"

typedef struct {
    int32_t element; /* bytes */
    int32_t rows;
    int32_t count;        /* of outputs */
    const int32_t *width; /* elements of a row of each output */
} diagmem_split_params;

static inline void diagmem_split(const diagmem_split_params *p, const void *input, void *const *outputs) {
    const unsigned char *in = input;
    for (int32_t row = 0; row < p->rows; ++row) {
        for (int32_t i = 0; i < p->count; ++i) {
            const int32_t width = p->width[i] * p->element;
            diagmem_move((unsigned char *)outputs[i] + row * width, in, p->element, p->width[i], p->element);
            in += width;
        }
    }
}
