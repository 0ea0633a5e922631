/* TRANSPOSE, SLICE, STRIDED_SLICE, SPACE_TO_DEPTH, DEPTH_TO_SPACE on elements of any type: neighbours along each axis
 * of the output lie evenly apart in the input. The output is written in order, each element after it is read. */
#include "_move.h"

#define DIAGMEM_STRIDED_AXES 6

typedef struct {
    int32_t element;                    /* bytes */
    int32_t offset;                     /* bytes from the input's start to what is read first */
    int32_t size[DIAGMEM_STRIDED_AXES]; /* of the output, the last one fastest */
    int32_t step[DIAGMEM_STRIDED_AXES]; /* bytes between neighbours in the input */
} diagmem_strided_params;

static inline void diagmem_strided(const diagmem_strided_params *p, const void *input, void *output) {
    const unsigned char *const in = input;
    unsigned char *out = output;
    const int32_t last = DIAGMEM_STRIDED_AXES - 1;
    int32_t index[DIAGMEM_STRIDED_AXES] = {0};
    int32_t at = p->offset;
    int32_t axis = last;
    while (axis >= 0) {
        out = diagmem_move(out, in + at, p->step[last], p->size[last], p->element);
        for (axis = last - 1; axis >= 0; --axis) {
            at += p->step[axis];
            if (++index[axis] < p->size[axis]) {
                break;
            }
            at -= p->size[axis] * p->step[axis];
            index[axis] = 0;
        }
    }
}
