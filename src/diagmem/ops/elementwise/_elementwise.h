/* Operations on single elements: each is read, then written. */
#ifndef DIAGMEM_ELEMENTWISE_H
#define DIAGMEM_ELEMENTWISE_H

#include "../loops/_broadcast.h"

/* Defines the kernel `name`. Its parameters `p`, of type `params`, have a diagmem_broadcast `shape`; `expression` makes
 * an element of the output from `x`, that of the input. */
#define DIAGMEM_ELEMENTWISE(name, params, type, expression)                                    \
    static inline void name##_row(const params *p, const type *in, type *out) {                \
        const int32_t last = DIAGMEM_AXES - 1;                                                 \
        const int32_t in_step = p->shape.first[last];                                          \
        const int32_t out_step = p->shape.out[last];                                           \
        for (int32_t i = p->shape.size[last]; i > 0; --i, in += in_step, out += out_step) {    \
            const type x = *in;                                                                \
            *out = (type)(expression);                                                         \
        }                                                                                      \
    }                                                                                          \
    static inline void name(const params *p, const type *in, type *out) {                      \
        diagmem_place at = {{0}, 0, 0, 0};                                                     \
        do {                                                                                   \
            name##_row(p, in + at.first, out + at.out);                                        \
        } while (diagmem_next_row(&p->shape, &at));                                            \
    }

#endif
