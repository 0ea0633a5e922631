/* Activations and other functions of one number, on single precision. */
#include "_elementwise.h"
#include "../numerics/_real.h"
#include "../numerics/_real_f32.h"

typedef struct {
    diagmem_broadcast shape;
    float low; /* the range that RELU and its like leave */
    float high;
    float slope; /* of LEAKY_RELU below 0 */
} diagmem_unary_f32_params;

static inline float diagmem_hard_swish_of_f32(float x) {
    return x * diagmem_clamp_f32(x + 3.0f, 0.0f, 6.0f) / 6.0f;
}

#define DIAGMEM_UNARY_F32(name, expression) DIAGMEM_ELEMENTWISE(name, diagmem_unary_f32_params, float, expression)

DIAGMEM_UNARY_F32(diagmem_relu_f32, diagmem_clamp_f32(x, p->low, p->high))
DIAGMEM_UNARY_F32(diagmem_leaky_relu_f32, x > 0.0f ? x : x * p->slope)
DIAGMEM_UNARY_F32(diagmem_elu_f32, x < 0.0f ? diagmem_expm1_f32(x) : x)
DIAGMEM_UNARY_F32(diagmem_hard_swish_f32, diagmem_hard_swish_of_f32(x))
DIAGMEM_UNARY_F32(diagmem_logistic_f32, diagmem_logistic_of_f32(x))
DIAGMEM_UNARY_F32(diagmem_tanh_f32, diagmem_tanh_of_f32(x))
DIAGMEM_UNARY_F32(diagmem_gelu_f32, diagmem_gelu_of_f32(x))
DIAGMEM_UNARY_F32(diagmem_gelu_by_tanh_f32, diagmem_gelu_by_tanh_of_f32(x))
DIAGMEM_UNARY_F32(diagmem_sqrt_f32, sqrtf(x))
DIAGMEM_UNARY_F32(diagmem_rsqrt_f32, 1.0f / sqrtf(x))
DIAGMEM_UNARY_F32(diagmem_exponential_f32, diagmem_exp_f32(x))
DIAGMEM_UNARY_F32(diagmem_abs_f32, fabsf(x))
DIAGMEM_UNARY_F32(diagmem_neg_f32, -x)
DIAGMEM_UNARY_F32(diagmem_square_f32, x * x)
