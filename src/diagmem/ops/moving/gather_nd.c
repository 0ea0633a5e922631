/* GATHER_ND on elements of any type: slices of the input, each picked by an index along its first axes. An index is
 * read before its slice; the output is written in order, each element after it is read. Numbers outside an axis pick
 * its nearest end. */
#include "../loops/_move.h"
#include "../numerics/_element.h"

typedef struct {
    int32_t element;     /* bytes */
    int32_t index_type;  /* a type of _element.h */
    int32_t counts_back; /* the size of an axis is added to numbers below 0 */
    int32_t run;         /* elements of a slice */
    int32_t slices;
    int32_t depth;       /* numbers of an index */
    const int32_t *size; /* of the axes that they go along */
    const int32_t *step; /* bytes between neighbours along those */
} diagmem_gather_nd_params;

static inline void diagmem_gather_nd(const diagmem_gather_nd_params *p, const void *input, const void *indices,
                                     void *output) {
    const int32_t step = diagmem_element_bytes(p->index_type);
    const unsigned char *from = indices;
    unsigned char *out = output;
    for (int32_t i = 0; i < p->slices; ++i) {
        const unsigned char *in = input;
        for (int32_t axis = 0; axis < p->depth; ++axis, from += step) {
            const int32_t size = p->size[axis];
            in += diagmem_index(from, p->index_type, size, p->counts_back ? size : 0) * p->step[axis];
        }
        out = diagmem_move(out, in, p->element, p->run, p->element);
    }
}
