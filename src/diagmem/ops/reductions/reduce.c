/* MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD. */
#include "../loops/_fibres.h"
#include "../numerics/_fixed_point.h"
#include "../numerics/_wrapping_s64.h"

typedef struct {
    diagmem_fibres fibres;
    int32_t offset; /* added to the sum of a fibre: minus its elements' zero points */
    diagmem_requantisation output;
} diagmem_sum_int_params;

DIAGMEM_REDUCTION(diagmem_sum_s8, diagmem_sum_int_params, int8_t, int32_t, 0, total + x,
                  diagmem_requantise(&p->output, total + p->offset))
DIAGMEM_REDUCTION(diagmem_sum_u8, diagmem_sum_int_params, uint8_t, int32_t, 0, total + x,
                  diagmem_requantise(&p->output, total + p->offset))
DIAGMEM_REDUCTION(diagmem_sum_s16, diagmem_sum_int_params, int16_t, int32_t, 0, total + x,
                  diagmem_requantise(&p->output, total + p->offset))

typedef struct {
    diagmem_fibres fibres;
    float divisor; /* of a sum */
} diagmem_reduce_params;

DIAGMEM_REDUCTION(diagmem_sum_f32, diagmem_reduce_params, float, float, 0.0f, total + x, total / p->divisor)

/* What does not fit wraps around. */
DIAGMEM_REDUCTION(diagmem_sum_s32, diagmem_reduce_params, int32_t, int32_t, 0, diagmem_wrapping_add(total, x), total)
DIAGMEM_REDUCTION(diagmem_sum_s64, diagmem_reduce_params, int64_t, int64_t, 0, diagmem_wrapping_add_s64(total, x),
                  total)
DIAGMEM_REDUCTION(diagmem_reduce_prod_s32, diagmem_reduce_params, int32_t, int32_t, 1, diagmem_wrapping_mul(total, x),
                  total)
DIAGMEM_REDUCTION(diagmem_reduce_prod_s64, diagmem_reduce_params, int64_t, int64_t, 1,
                  diagmem_wrapping_mul_s64(total, x), total)
DIAGMEM_REDUCTION(diagmem_reduce_prod_f32, diagmem_reduce_params, float, float, 1.0f, total * x, total)

DIAGMEM_REDUCTION(diagmem_reduce_max_s8, diagmem_reduce_params, int8_t, int8_t, *in, x > total ? x : total, total)
DIAGMEM_REDUCTION(diagmem_reduce_max_u8, diagmem_reduce_params, uint8_t, uint8_t, *in, x > total ? x : total, total)
DIAGMEM_REDUCTION(diagmem_reduce_max_s16, diagmem_reduce_params, int16_t, int16_t, *in, x > total ? x : total, total)
DIAGMEM_REDUCTION(diagmem_reduce_max_s32, diagmem_reduce_params, int32_t, int32_t, *in, x > total ? x : total, total)
DIAGMEM_REDUCTION(diagmem_reduce_max_s64, diagmem_reduce_params, int64_t, int64_t, *in, x > total ? x : total, total)
DIAGMEM_REDUCTION(diagmem_reduce_max_f32, diagmem_reduce_params, float, float, *in, x > total ? x : total, total)
DIAGMEM_REDUCTION(diagmem_reduce_min_s8, diagmem_reduce_params, int8_t, int8_t, *in, x < total ? x : total, total)
DIAGMEM_REDUCTION(diagmem_reduce_min_u8, diagmem_reduce_params, uint8_t, uint8_t, *in, x < total ? x : total, total)
DIAGMEM_REDUCTION(diagmem_reduce_min_s16, diagmem_reduce_params, int16_t, int16_t, *in, x < total ? x : total, total)
DIAGMEM_REDUCTION(diagmem_reduce_min_s32, diagmem_reduce_params, int32_t, int32_t, *in, x < total ? x : total, total)
DIAGMEM_REDUCTION(diagmem_reduce_min_s64, diagmem_reduce_params, int64_t, int64_t, *in, x < total ? x : total, total)
DIAGMEM_REDUCTION(diagmem_reduce_min_f32, diagmem_reduce_params, float, float, *in, x < total ? x : total, total)

typedef struct {
    diagmem_fibres fibres;
    int32_t count; /* of a fibre's elements */
} diagmem_mean_params;

DIAGMEM_REDUCTION(diagmem_mean_s32, diagmem_mean_params, int32_t, int64_t, 0, total + x, total / p->count)
DIAGMEM_REDUCTION(diagmem_mean_s64, diagmem_mean_params, int64_t, int64_t, 0, diagmem_wrapping_add_s64(total, x),
                  total / p->count)

typedef struct {
    diagmem_fibres fibres;
    float divisor; /* of a sum */
    float scale;   /* of the integers */
    int32_t zero_point;
} diagmem_widened_sum_params;

/* Integers are widened to single precision as they are read. */
#define DIAGMEM_WIDENED_SUM(name, type)                                                      \
    DIAGMEM_REDUCTION_TO(name, diagmem_widened_sum_params, type, float, float, 0.0f,         \
                         total + p->scale * (float)((int32_t)x - p->zero_point), total / p->divisor)

DIAGMEM_WIDENED_SUM(diagmem_widened_sum_s8, int8_t)
DIAGMEM_WIDENED_SUM(diagmem_widened_sum_u8, uint8_t)
