/* ARG_MAX, ARG_MIN: where along an axis the largest or smallest element stands, the first of equal ones. For each
 * output element: all along the axis is read, then it is written. */
#include "../numerics/_element.h"

typedef struct {
    int32_t outer; /* axes before that which is searched */
    int32_t size;
    int32_t inner; /* axes behind it */
    int32_t type;  /* of the input, a type of _element.h */
    int32_t is_max;
    int32_t index_type; /* of the output */
} diagmem_arg_max_params;

static inline int diagmem_arg_max_beats(const diagmem_arg_max_params *p, const unsigned char *one,
                                        const unsigned char *other) {
    const unsigned char *const large = p->is_max ? one : other;
    const unsigned char *const small = p->is_max ? other : one;
    if (p->type == DIAGMEM_F32) {
        return diagmem_load_f32(large) > diagmem_load_f32(small);
    }
    return diagmem_load_int(large, p->type) > diagmem_load_int(small, p->type);
}

static inline int32_t diagmem_arg_max_of(const diagmem_arg_max_params *p, const unsigned char *in) {
    const int32_t step = p->inner * diagmem_element_bytes(p->type);
    int32_t best = 0;
    for (int32_t i = 1; i < p->size; ++i) {
        best = diagmem_arg_max_beats(p, in + i * step, in + best * step) ? i : best;
    }
    return best;
}

static inline void diagmem_arg_max(const diagmem_arg_max_params *p, const void *input, void *output) {
    const int32_t element = diagmem_element_bytes(p->type);
    const unsigned char *in = input;
    unsigned char *out = output;
    for (int32_t i = 0; i < p->outer; ++i, in += p->size * p->inner * element) {
        for (int32_t j = 0; j < p->inner; ++j, out += diagmem_element_bytes(p->index_type)) {
            diagmem_store_int(out, p->index_type, diagmem_arg_max_of(p, in + j * element));
        }
    }
}
