/* CONCATENATION, PACK on elements of any type: rows of several inputs in turn. The output is written in order, each
 * element after it is read. */
#include "../loops/_move.h"

typedef struct {
    int32_t element;      /* bytes */
    int32_t size[3]; /* of the axes before that along which the inputs stand; for every index of these there is a row */
    int32_t pitch[3];     /* bytes between neighbours in the output along those axes */
    int32_t count;        /* of inputs */
    const int32_t *width; /* elements of a row of each input */
    const int32_t *pitches; /* [count][3], as `pitch` for each input */
} diagmem_concatenation_params;

static inline void diagmem_concatenation(const diagmem_concatenation_params *p, const void *const *inputs,
                                         void *output) {
    for (int32_t i = 0; i < p->size[0]; ++i) {
        for (int32_t j = 0; j < p->size[1]; ++j) {
            for (int32_t k = 0; k < p->size[2]; ++k) {
                unsigned char *out = (unsigned char *)output + i * p->pitch[0] + j * p->pitch[1] + k * p->pitch[2];
                for (int32_t n = 0; n < p->count; ++n) {
                    const int32_t *const pitch = p->pitches + 3 * n;
                    const unsigned char *const in = inputs[n];
                    out = diagmem_move(out, in + i * pitch[0] + j * pitch[1] + k * pitch[2], p->element, p->width[n],
                                       p->element);
                }
            }
        }
    }
}
