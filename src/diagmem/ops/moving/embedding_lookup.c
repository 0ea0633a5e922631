/* EMBEDDING_LOOKUP: rows of a table, picked by index. An index is read, then its row is written, each element after it
 * is read. An index outside the table picks its nearest end. */
#include "../loops/_move.h"
#include "../numerics/_element.h"

typedef struct {
    int32_t rows; /* of the table */
    int32_t picks;
    int32_t run;     /* elements of a row */
    int32_t element; /* bytes of an element of the output */
    float scale;     /* not 0: 8-bit integers become real numbers */
} diagmem_embedding_lookup_params;

static inline void diagmem_embedding_lookup(const diagmem_embedding_lookup_params *p, const void *indices,
                                            const void *table, void *output) {
    unsigned char *out = output;
    for (int32_t i = 0; i < p->picks; ++i) {
        const int32_t row = diagmem_index((const unsigned char *)indices + 4 * i, DIAGMEM_S32, p->rows, 0);
        if (p->scale != 0.0f) {
            const int8_t *const from = (const int8_t *)table + row * p->run;
            for (int32_t k = 0; k < p->run; ++k, out += 4) {
                diagmem_store_f32(out, p->scale * (float)from[k]);
            }
        } else {
            const unsigned char *const from = (const unsigned char *)table + row * p->run * p->element;
            out = diagmem_move(out, from, p->element, p->run, p->element);
        }
    }
}
