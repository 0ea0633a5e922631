/* QUANTIZE from real numbers, from integers of another scale; DEQUANTIZE; RELU and its like on integers. Each element
 * is read, then written. */
#include "../numerics/_element.h"
#include "../numerics/_fixed_point.h"

typedef struct {
    diagmem_broadcast shape;
    int32_t from; /* a type of _element.h */
    int32_t to;
    int32_t zero_point;
    diagmem_requantisation output;
} diagmem_requantize_params;

static inline void diagmem_requantize_one(const diagmem_requantize_params *p, const unsigned char *in,
                                          unsigned char *out) {
    const int32_t value = (int32_t)(diagmem_load_int(in, p->from) - p->zero_point);
    diagmem_store_int(out, p->to, diagmem_requantise(&p->output, value));
}

DIAGMEM_CONVERSION(diagmem_requantize, diagmem_requantize_params, diagmem_requantize_one, p->from, p->to)

typedef struct {
    diagmem_broadcast shape;
    int32_t type; /* of the integers */
    float scale;
    int32_t zero_point;
    int32_t low; /* the range of the integers */
    int32_t high;
} diagmem_quantize_params;

/* The nearest integer, halves away from zero. Numbers that no output can hold become the nearest that one can, and what
 * is no number the least. */
static inline int32_t diagmem_rounded(const diagmem_quantize_params *p, float x) {
    if (!(x > (float)(p->low - p->zero_point))) {
        return p->low;
    }
    if (x >= (float)(p->high - p->zero_point)) {
        return p->high;
    }
    const int32_t whole = (int32_t)x;
    const float rest = x - (float)whole;
    return p->zero_point + whole + (rest >= 0.5f) - (rest <= -0.5f);
}

static inline void diagmem_quantize_one(const diagmem_quantize_params *p, const unsigned char *in,
                                        unsigned char *out) {
    diagmem_store_int(out, p->type, diagmem_rounded(p, diagmem_load_f32(in) / p->scale));
}

#ifdef DIAGMEM_TO_EVEN
/* The same, halves to even. */
static inline int32_t diagmem_rounded_to_even(const diagmem_quantize_params *p, float x) {
    if (!(x > (float)(p->low - p->zero_point))) {
        return p->low;
    }
    return x >= (float)(p->high - p->zero_point) ? p->high : p->zero_point + diagmem_nearest_even(x);
}

static inline void diagmem_quantize_to_even_one(const diagmem_quantize_params *p, const unsigned char *in,
                                                unsigned char *out) {
    diagmem_store_int(out, p->type, diagmem_rounded_to_even(p, diagmem_load_f32(in) / p->scale));
}

DIAGMEM_CONVERSION(diagmem_quantize_to_even, diagmem_quantize_params, diagmem_quantize_to_even_one, DIAGMEM_F32,
                   p->type)
#endif

static inline void diagmem_dequantize_one(const diagmem_quantize_params *p, const unsigned char *in,
                                          unsigned char *out) {
    diagmem_store_f32(out, p->scale * (float)((int32_t)diagmem_load_int(in, p->type) - p->zero_point));
}

DIAGMEM_CONVERSION(diagmem_quantize, diagmem_quantize_params, diagmem_quantize_one, DIAGMEM_F32, p->type)
DIAGMEM_CONVERSION(diagmem_dequantize, diagmem_quantize_params, diagmem_dequantize_one, p->type, DIAGMEM_F32)
