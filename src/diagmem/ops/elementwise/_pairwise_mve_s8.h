/* Operations on pairs of 8-bit integers, four elements at a time where neighbours are neighbours in memory: the inputs
 * of four elements are read, then these are written. */
#ifndef DIAGMEM_PAIRWISE_MVE_S8_H
#define DIAGMEM_PAIRWISE_MVE_S8_H

#include "../loops/_broadcast.h"
#include "../numerics/_mve.h"

#if DIAGMEM_HAS_MVE

#define DIAGMEM_FOURS_MVE(four, one)                                                                           \
    for (; left >= 4; left -= 4, first += 4, second += 4, out += 4) {                                          \
        const int32x4_t x = vldrbq_s32(first);                                                                 \
        const int32x4_t y = vldrbq_s32(second);                                                                \
        vstrbq_s32(out, four(p, x, y));                                                                        \
    }                                                                                                          \
    if (left > 0) {                                                                                            \
        const mve_pred16_t some = vctp32q((uint32_t)left);                                                     \
        const int32x4_t x = vldrbq_z_s32(first, some);                                                         \
        const int32x4_t y = vldrbq_z_s32(second, some);                                                        \
        vstrbq_p_s32(out, four(p, x, y), some);                                                                \
    }

#else

#define DIAGMEM_FOURS_MVE(four, one)                                                                           \
    while (left > 0) {                                                                                         \
        int8_t results[4];                                                                                     \
        const int32_t some = left < 4 ? left : 4;                                                              \
        for (int32_t i = 0; i < some; ++i) {                                                                   \
            results[i] = (int8_t)one(p, *first++, *second++);                                                  \
        }                                                                                                      \
        for (int32_t i = 0; i < some; ++i) {                                                                   \
            *out++ = results[i];                                                                               \
        }                                                                                                      \
        left -= some;                                                                                          \
    }

#endif

/* Defines the kernel `name`; `four` makes outputs of four elements of each input, `one` of one. */
#define DIAGMEM_PAIRWISE_MVE_S8(name, four, one)                                                                       \
    static DIAGMEM_APART void name##_row(const name##_params *p, const int8_t *first, const int8_t *second,            \
                                         int8_t *out) {                                                                \
        const int32_t first_step = p->shape.first[DIAGMEM_AXES - 1];                                                   \
        const int32_t second_step = p->shape.second[DIAGMEM_AXES - 1];                                                 \
        const int32_t out_step = p->shape.out[DIAGMEM_AXES - 1];                                                       \
        int32_t left = p->shape.size[DIAGMEM_AXES - 1];                                                                \
        if (first_step == 1 && second_step == 1 && out_step == 1) {                                                    \
            DIAGMEM_FOURS_MVE(four, one)                                                                               \
            return;                                                                                                    \
        }                                                                                                              \
        for (; left > 0; --left, first += first_step, second += second_step, out += out_step) {                        \
            *out = (int8_t)one(p, *first, *second);                                                                    \
        }                                                                                                              \
    }                                                                                                                  \
    static inline void name(const name##_params *p, const int8_t *first, const int8_t *second, int8_t *out) {          \
        diagmem_place at = {{0}, 0, 0, 0};                                                                             \
        do {                                                                                                           \
            name##_row(p, first + at.first, second + at.second, out + at.out);                                         \
        } while (diagmem_next_row(&p->shape, &at));                                                                    \
    }

#endif
