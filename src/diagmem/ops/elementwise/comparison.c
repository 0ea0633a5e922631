/* EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL on elements of any type. For each output element: its
 * inputs are read, then it is written. */
#include "../numerics/_element.h"
#include "../numerics/_fixed_point.h"

/* To a scale that both inputs share. */
typedef struct {
    int32_t zero_point;
    int32_t mantissa;
    int32_t shift;
} diagmem_compared;

typedef struct {
    diagmem_broadcast shape;
    int32_t type;      /* a type of _element.h */
    int32_t cases;     /* what is true: less (1), equal (2), greater (4), one is no number (8) */
    int32_t is_scaled; /* numbers are compared by what they stand for */
    diagmem_compared first;
    diagmem_compared second;
} diagmem_comparison_params;

static inline int64_t diagmem_compared_int(const diagmem_comparison_params *p, const diagmem_compared *by,
                                           const unsigned char *at) {
    const int64_t x = diagmem_load_int(at, p->type);
    return p->is_scaled ? diagmem_rescale(((int32_t)x - by->zero_point) * 256, by->mantissa, by->shift) : x;
}

static inline int32_t diagmem_case_of(const diagmem_comparison_params *p, const unsigned char *first,
                                      const unsigned char *second) {
    if (p->type == DIAGMEM_F32) {
        const float x = diagmem_load_f32(first);
        const float y = diagmem_load_f32(second);
        return x < y ? 1 : x > y ? 4 : x == y ? 2 : 8;
    } else {
        const int64_t x = diagmem_compared_int(p, &p->first, first);
        const int64_t y = diagmem_compared_int(p, &p->second, second);
        return x < y ? 1 : x > y ? 4 : 2;
    }
}

static inline void diagmem_comparison(const diagmem_comparison_params *p, const void *first, const void *second,
                                      void *out) {
    const int32_t last = DIAGMEM_AXES - 1;
    const int32_t bytes = diagmem_element_bytes(p->type);
    diagmem_place at = {{0}, 0, 0, 0};
    do {
        const unsigned char *x = (const unsigned char *)first + at.first * bytes;
        const unsigned char *y = (const unsigned char *)second + at.second * bytes;
        unsigned char *to = (unsigned char *)out + at.out;
        for (int32_t i = p->shape.size[last]; i > 0; --i) {
            *to = (diagmem_case_of(p, x, y) & p->cases) != 0;
            x += p->shape.first[last] * bytes;
            y += p->shape.second[last] * bytes;
            to += p->shape.out[last];
        }
    } while (diagmem_next_row(&p->shape, &at));
}
