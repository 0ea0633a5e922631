/* Reductions: each output element is made of a fibre, all inputs that share its place on the axes that are kept. */
#ifndef DIAGMEM_FIBRES_H
#define DIAGMEM_FIBRES_H

#include <stddef.h>
#include <stdint.h>

/* Axes, the last one fastest, and for each the elements between neighbours. */
typedef struct {
    int32_t size[3];
    int32_t stride[3];
} diagmem_axes;

typedef struct {
    diagmem_axes kept;
    diagmem_axes reduced;
} diagmem_fibres;

/* Defines the kernel `name`: for each output element, its fibre is read, then it is written. Its parameters `p`, of
 * type `params`, have the diagmem_fibres `fibres`. `total` is at first `start`, for each `x` of the fibre, of which
 * `in` points at the first, it becomes `step`; `result` makes the output from it. `name`_take takes the input one row a
 * turn: totals are kept in `sums`, and the last turn makes the outputs. */
#define DIAGMEM_REDUCTION(name, params, type, total_type, start, step, result) \
    DIAGMEM_REDUCTION_TO(name, params, type, type, total_type, start, step, result)

/* The same where the output is of another type, `made`. */
#define DIAGMEM_REDUCTION_TO(name, params, type, made, total_type, start, step, result)                  \
    static inline total_type name##_fibre(const params *p, const type *in, total_type total) {           \
        const diagmem_axes *const a = &p->fibres.reduced;                                                \
        for (int32_t i = 0; i < a->size[0]; ++i) {                                                       \
            for (int32_t j = 0; j < a->size[1]; ++j) {                                                   \
                const type *at = in + i * a->stride[0] + j * a->stride[1];                               \
                for (int32_t k = 0; k < a->size[2]; ++k, at += a->stride[2]) {                           \
                    const type x = *at;                                                                  \
                    total = step;                                                                        \
                }                                                                                        \
            }                                                                                            \
        }                                                                                                \
        return total;                                                                                    \
    }                                                                                                    \
    static inline void name##_take(const params *p, int32_t turn, int32_t turns, const type *first,      \
                                   total_type *sums, made *out) {                                        \
        const diagmem_axes *const a = &p->fibres.kept;                                                   \
        int32_t n = 0;                                                                                   \
        for (int32_t i = 0; i < a->size[0]; ++i) {                                                       \
            for (int32_t j = 0; j < a->size[1]; ++j) {                                                   \
                const type *in = first + i * a->stride[0] + j * a->stride[1];                            \
                for (int32_t k = 0; k < a->size[2]; ++k, ++n, in += a->stride[2]) {                      \
                    const total_type total = name##_fibre(p, in, turn == 0 ? start : sums[n]);           \
                    if (turn < turns - 1) {                                                              \
                        sums[n] = total;                                                                 \
                    } else {                                                                             \
                        out[n] = (made)(result);                                                         \
                    }                                                                                    \
                }                                                                                        \
            }                                                                                            \
        }                                                                                                \
    }                                                                                                    \
    static inline void name(const params *p, const type *in, made *out) {                                \
        name##_take(p, 0, 1, in, NULL, out);                                                             \
    }

#endif
