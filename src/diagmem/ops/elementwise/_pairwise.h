/* Operations on pairs of elements. For each output element: its inputs are read, then it is written. */
#ifndef DIAGMEM_PAIRWISE_H
#define DIAGMEM_PAIRWISE_H

#include "../loops/_broadcast.h"

/* Defines the kernel `name`. Its parameters `p`, of type `params`, have a diagmem_broadcast `shape`; `expression` makes
 * an element of the output from `x` and `y`, one of each input. */
#define DIAGMEM_PAIRWISE(name, params, type, second_type, expression)                                                 \
    static inline void name##_row(const params *p, const type *first, const second_type *second, type *out) {        \
        const int32_t last = DIAGMEM_AXES - 1;                                                                       \
        const int32_t first_step = p->shape.first[last];                                                             \
        const int32_t second_step = p->shape.second[last];                                                           \
        const int32_t out_step = p->shape.out[last];                                                                 \
        for (int32_t i = p->shape.size[last]; i > 0; --i) {                                                          \
            const type x = *first;                                                                                   \
            const second_type y = *second;                                                                           \
            *out = (type)(expression);                                                                               \
            first += first_step;                                                                                     \
            second += second_step;                                                                                   \
            out += out_step;                                                                                         \
        }                                                                                                            \
    }                                                                                                                \
    static inline void name(const params *p, const type *first, const second_type *second, type *out) {              \
        diagmem_place at = {{0}, 0, 0, 0};                                                                           \
        do {                                                                                                         \
            name##_row(p, first + at.first, second + at.second, out + at.out);                                       \
        } while (diagmem_next_row(&p->shape, &at));                                                                  \
    }

#endif
