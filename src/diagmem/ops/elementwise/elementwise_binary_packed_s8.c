/* ADD and MUL on 8-bit integers for cores that multiply and round in one instruction. For each output element: its
 * inputs are read, then it is written. */
#include "../loops/_broadcast.h"
#include "../numerics/_dsp.h"

/* The input that is scaled: x * 2^21 - offset times a mantissa, rounded twice. The other one is worth half a unit. */
typedef struct {
    int32_t offset;
    int32_t mantissa;
    int32_t addend; /* of the second rounding, less the other input's zero point */
    int32_t sign;   /* -1 if the second rounding asks for the sign, else 0 */
    int32_t shift;
} diagmem_scaled_addend;

/* From a sum or product to the output. */
typedef struct {
    int32_t mantissa;
    int32_t addend;
    int32_t shift;
} diagmem_packed_output;

typedef struct {
    diagmem_broadcast shape;
    diagmem_scaled_addend scaled;
    diagmem_packed_output output;
} diagmem_add_packed_s8_params;

typedef struct {
    diagmem_broadcast shape;
    int32_t first_zero_point;
    int32_t second_zero_point;
    diagmem_packed_output output;
} diagmem_mul_packed_s8_params;

DIAGMEM_IN_ORDER

static inline int32_t diagmem_scaled_sum(const diagmem_scaled_addend *from, int32_t x, int32_t y) {
    const int32_t centred = x * (1 << 21) - from->offset;
    const int32_t addend = from->addend + ((centred >> 31) & from->sign);
    return (diagmem_add_nearest(addend, centred, from->mantissa) >> from->shift) + y * (1 << 19);
}

static inline int8_t diagmem_packed_result(const diagmem_packed_output *to, int32_t x) {
    return diagmem_saturated_s8(diagmem_add_nearest(to->addend + (x >> 31), x * 2, to->mantissa) >> to->shift);
}

/* Defines the kernel `name`; `result` makes an output of `x` and `y`, one element of each input. */
#define DIAGMEM_PAIRWISE_S8(name, setup, result)                                                                       \
    static DIAGMEM_APART void name##_row(const name##_params *p, const int8_t *first, const int8_t *second,            \
                                         int8_t *out) {                                                                \
        const diagmem_packed_output to = p->output;                                                                    \
        const int32_t first_step = p->shape.first[DIAGMEM_AXES - 1];                                                   \
        const int32_t second_step = p->shape.second[DIAGMEM_AXES - 1];                                                 \
        const int32_t out_step = p->shape.out[DIAGMEM_AXES - 1];                                                       \
        int32_t left = p->shape.size[DIAGMEM_AXES - 1];                                                                \
        setup;                                                                                                         \
        if (first_step == 1 && second_step == 1 && out_step == 1) {                                                    \
            for (const int8_t *const end = out + left; out != end;) {                                                  \
                const int32_t x = *first++;                                                                            \
                const int32_t y = *second++;                                                                           \
                *out++ = diagmem_packed_result(&to, result);                                                           \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (; left > 0; --left, first += first_step, second += second_step, out += out_step) {                        \
            const int32_t x = *first;                                                                                  \
            const int32_t y = *second;                                                                                 \
            *out = diagmem_packed_result(&to, result);                                                                 \
        }                                                                                                              \
    }                                                                                                                  \
    static inline void name(const name##_params *p, const int8_t *first, const int8_t *second, int8_t *out) {          \
        diagmem_place at = {{0}, 0, 0, 0};                                                                             \
        do {                                                                                                           \
            name##_row(p, first + at.first, second + at.second, out + at.out);                                         \
        } while (diagmem_next_row(&p->shape, &at));                                                                    \
    }

DIAGMEM_PAIRWISE_S8(diagmem_add_packed_s8, const diagmem_scaled_addend scaled = p->scaled,
                    diagmem_scaled_sum(&scaled, x, y))
DIAGMEM_PAIRWISE_S8(diagmem_mul_packed_s8, const int32_t a = p->first_zero_point;
                    const int32_t b = p->second_zero_point, (x - a) * (y - b))

DIAGMEM_IN_ANY_ORDER
