/* ONE_HOT on values of any type. For each element of the output its index and both values are read, then it is
 * written. */
#include "../loops/_move.h"
#include "../numerics/_element.h"

typedef struct {
    int32_t index_type; /* a type of _element.h */
    int32_t element;    /* bytes of a value */
    int32_t outer;      /* indices before the new axis, and behind it */
    int32_t depth;
    int32_t inner;
} diagmem_one_hot_params;

static inline void diagmem_one_hot(const diagmem_one_hot_params *p, const void *indices, const void *on,
                                   const void *off, void *output) {
    const int32_t bytes = diagmem_element_bytes(p->index_type);
    const unsigned char *row = indices;
    unsigned char *out = output;
    for (int32_t i = 0; i < p->outer; ++i, row += p->inner * bytes) {
        for (int32_t d = 0; d < p->depth; ++d) {
            for (int32_t k = 0; k < p->inner; ++k) {
                const void *const value = diagmem_load_int(row + k * bytes, p->index_type) == d ? on : off;
                out = diagmem_move(out, value, 0, 1, p->element);
            }
        }
    }
}
