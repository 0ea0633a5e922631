/* AVERAGE_POOL_2D on single precision. */
#include "_average.h"
#include "../numerics/_real.h"

DIAGMEM_AVERAGE_POOL_2D(diagmem_average_pool_2d_f32, float, float, diagmem_mean_f32, diagmem_clamp_f32)
