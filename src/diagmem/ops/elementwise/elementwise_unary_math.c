/* LOG, trigonometric and hyperbolic functions, FLOOR, CEIL, ROUND, SIGN on single precision, LOGICAL_NOT on truths,
 * ABS, NEG, SIGN on plain integers. What C libraries compute in their own ways is computed in double precision, so that
 * they agree in what is left of it. */
#include <math.h>

#include "../numerics/_fixed_point.h"
#include "../numerics/_wrapping_s64.h"
#include "_elementwise.h"

typedef struct {
    diagmem_broadcast shape;
} diagmem_unary_math_params;

#define DIAGMEM_UNARY_MATH(name, expression) DIAGMEM_ELEMENTWISE(name, diagmem_unary_math_params, float, expression)

DIAGMEM_UNARY_MATH(diagmem_math_log_f32, log((double)x))
DIAGMEM_UNARY_MATH(diagmem_math_sin_f32, sin((double)x))
DIAGMEM_UNARY_MATH(diagmem_math_cos_f32, cos((double)x))
DIAGMEM_UNARY_MATH(diagmem_math_tan_f32, tan((double)x))
DIAGMEM_UNARY_MATH(diagmem_math_acos_f32, acos((double)x))
DIAGMEM_UNARY_MATH(diagmem_math_asin_f32, asin((double)x))
DIAGMEM_UNARY_MATH(diagmem_math_atan_f32, atan((double)x))
DIAGMEM_UNARY_MATH(diagmem_math_sinh_f32, sinh((double)x))
DIAGMEM_UNARY_MATH(diagmem_math_cosh_f32, cosh((double)x))
DIAGMEM_UNARY_MATH(diagmem_math_acosh_f32, acosh((double)x))
DIAGMEM_UNARY_MATH(diagmem_math_asinh_f32, asinh((double)x))
DIAGMEM_UNARY_MATH(diagmem_math_atanh_f32, atanh((double)x))
DIAGMEM_UNARY_MATH(diagmem_math_sign_f32, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x)
DIAGMEM_UNARY_MATH(diagmem_math_floor_f32, floorf(x))
DIAGMEM_UNARY_MATH(diagmem_math_ceil_f32, ceilf(x))
DIAGMEM_UNARY_MATH(diagmem_math_round_f32, rintf(x))
DIAGMEM_ELEMENTWISE(diagmem_logical_not, diagmem_unary_math_params, uint8_t, !x)

/* What does not fit wraps around. */
DIAGMEM_ELEMENTWISE(diagmem_math_abs_s32, diagmem_unary_math_params, int32_t, x < 0 ? diagmem_wrapping_sub(0, x) : x)
DIAGMEM_ELEMENTWISE(diagmem_math_neg_s32, diagmem_unary_math_params, int32_t, diagmem_wrapping_sub(0, x))
DIAGMEM_ELEMENTWISE(diagmem_math_sign_s32, diagmem_unary_math_params, int32_t, (x > 0) - (x < 0))
DIAGMEM_ELEMENTWISE(diagmem_math_sign_s64, diagmem_unary_math_params, int64_t, (x > 0) - (x < 0))
DIAGMEM_ELEMENTWISE(diagmem_math_abs_s64, diagmem_unary_math_params, int64_t,
                    x < 0 ? diagmem_wrapping_sub_s64(0, x) : x)
DIAGMEM_ELEMENTWISE(diagmem_math_neg_s64, diagmem_unary_math_params, int64_t, diagmem_wrapping_sub_s64(0, x))
