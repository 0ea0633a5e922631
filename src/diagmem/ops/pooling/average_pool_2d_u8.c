/* AVERAGE_POOL_2D on unsigned 8-bit integers. */
#include "_average.h"
#include "../numerics/_fixed_point.h"

DIAGMEM_AVERAGE_POOL_2D(diagmem_average_pool_2d_u8, uint8_t, int32_t, diagmem_rounded_mean, diagmem_clamp)
