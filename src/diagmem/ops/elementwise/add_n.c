/* ADD_N: for each element that of every input is read, then their sum is written. */
#include "../numerics/_fixed_point.h"

typedef struct {
    int32_t elems;
    int32_t count; /* of inputs */
} diagmem_add_n_f32_params;

static inline void diagmem_add_n_f32(const diagmem_add_n_f32_params *p, const void *const *inputs, float *out) {
    for (int32_t i = 0; i < p->elems; ++i) {
        float total = 0.0f;
        for (int32_t j = 0; j < p->count; ++j) {
            total += ((const float *)inputs[j])[i];
        }
        out[i] = total;
    }
}

typedef struct {
    int32_t elems;
    int32_t count; /* of inputs */
    int32_t zero_point;
    int32_t mantissa; /* from an input with 20 bits behind the point to one term */
    int32_t shift;
    diagmem_requantisation output;
} diagmem_add_n_s8_params;

static inline int32_t diagmem_add_n_term(const diagmem_add_n_s8_params *p, int32_t x) {
    return diagmem_rescale((x - p->zero_point) * (1 << 20), p->mantissa, p->shift);
}

static inline void diagmem_add_n_s8(const diagmem_add_n_s8_params *p, const void *const *inputs, int8_t *out) {
    for (int32_t i = 0; i < p->elems; ++i) {
        int32_t total = diagmem_add_n_term(p, 0);
        for (int32_t j = 0; j < p->count; ++j) {
            total += diagmem_add_n_term(p, ((const int8_t *)inputs[j])[i]);
        }
        out[i] = (int8_t)diagmem_requantise(&p->output, total);
    }
}
