/* CONCATENATION of unsigned 8-bit integers that get another scale: rows of several inputs in turn, each element by way
 * of a table. The output is written in order, each element after it is read. */
#include <stdint.h>

typedef struct {
    int32_t element;        /* bytes: 1 */
    int32_t size[3]; /* of the axes before that along which the inputs stand; for every index of these there is a row */
    int32_t pitch[3];       /* bytes between neighbours in the output along those axes */
    int32_t count;          /* of inputs */
    const int32_t *width;   /* elements of a row of each input */
    const int32_t *pitches; /* [count][3], as `pitch` for each input */
    const uint8_t *tables;  /* [count][256], what each number of an input becomes */
} diagmem_concatenation_u8_params;

static inline void diagmem_concatenation_u8(const diagmem_concatenation_u8_params *p, const void *const *inputs,
                                            uint8_t *output) {
    for (int32_t i = 0; i < p->size[0]; ++i) {
        for (int32_t j = 0; j < p->size[1]; ++j) {
            for (int32_t k = 0; k < p->size[2]; ++k) {
                uint8_t *out = output + i * p->pitch[0] + j * p->pitch[1] + k * p->pitch[2];
                for (int32_t n = 0; n < p->count; ++n) {
                    const int32_t *const pitch = p->pitches + 3 * n;
                    const uint8_t *in = (const uint8_t *)inputs[n] + i * pitch[0] + j * pitch[1] + k * pitch[2];
                    for (const uint8_t *const end = in + p->width[n]; in != end; ++in) {
                        *out++ = p->tables[256 * n + *in];
                    }
                }
            }
        }
    }
}
