/* FLOOR_DIV, FLOOR_MOD on single precision and on plain integers, POW and ATAN2 on single precision. For each output
 * element: its inputs are read, then it is written. Powers and angles are computed in double precision, so that C
 * libraries agree in what is left of them. */
#include <math.h>

#include "../numerics/_wrapping_s64.h"
#include "_pairwise.h"

typedef struct {
    diagmem_broadcast shape;
} diagmem_floor_div_params;

static inline float diagmem_floor_mod_of_f32(float x, float y) {
    const float rest = fmodf(x, y);
    return rest != 0.0f && (y < 0.0f) != (rest < 0.0f) ? rest + y : rest;
}

/* A division by 0 gives 0; what does not fit wraps around. */
static inline int64_t diagmem_floor_div_of_int(int64_t x, int64_t y) {
    return y == 0 ? 0 : y == -1 ? diagmem_wrapping_sub_s64(0, x) : x / y - (x % y != 0 && (x < 0) != (y < 0));
}

static inline int64_t diagmem_floor_mod_of_int(int64_t x, int64_t y) {
    const int64_t rest = y == 0 || y == -1 ? 0 : x % y;
    return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest;
}

DIAGMEM_PAIRWISE(diagmem_floor_div_f32, diagmem_floor_div_params, float, float, floorf(x / y))
DIAGMEM_PAIRWISE(diagmem_floor_mod_f32, diagmem_floor_div_params, float, float, diagmem_floor_mod_of_f32(x, y))
DIAGMEM_PAIRWISE(diagmem_pow_f32, diagmem_floor_div_params, float, float, pow((double)x, (double)y))
DIAGMEM_PAIRWISE(diagmem_atan2_f32, diagmem_floor_div_params, float, float, atan2((double)x, (double)y))
DIAGMEM_PAIRWISE(diagmem_floor_div_s32, diagmem_floor_div_params, int32_t, int32_t, diagmem_floor_div_of_int(x, y))
DIAGMEM_PAIRWISE(diagmem_floor_mod_s32, diagmem_floor_div_params, int32_t, int32_t, diagmem_floor_mod_of_int(x, y))
DIAGMEM_PAIRWISE(diagmem_floor_div_s64, diagmem_floor_div_params, int64_t, int64_t, diagmem_floor_div_of_int(x, y))
DIAGMEM_PAIRWISE(diagmem_floor_mod_s64, diagmem_floor_div_params, int64_t, int64_t, diagmem_floor_mod_of_int(x, y))
