/* GATHER_ND on elements of any type: slices of the input, each picked by an index along its first axes. An index is
 * read before its slice; the output is written in order, each element after it is read. Numbers outside an axis pick
 * its nearest end. */
#include "../loops/_move.h"

typedef struct {
    int32_t element; /* bytes */
    int32_t run;     /* elements of a slice */
    int32_t slices;
    int32_t depth;       /* numbers of an index */
    const int32_t *size; /* of the axes that they go along */
    const int32_t *step; /* bytes between neighbours along those */
} diagmem_gather_nd_params;

static inline void diagmem_gather_nd(const diagmem_gather_nd_params *p, const void *input, const int32_t *indices,
                                     void *output) {
    unsigned char *out = output;
    for (int32_t i = 0; i < p->slices; ++i) {
        const unsigned char *in = input;
        for (int32_t axis = 0; axis < p->depth; ++axis, ++indices) {
            const int32_t index = *indices < p->size[axis] ? *indices : p->size[axis] - 1;
            in += (index > 0 ? index : 0) * p->step[axis];
        }
        out = diagmem_move(out, in, p->element, p->run, p->element);
    }
}
