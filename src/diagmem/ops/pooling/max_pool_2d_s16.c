/* MAX_POOL_2D on 16-bit integers. */
#include "_max_pool_2d.h"

DIAGMEM_MAX_POOL_2D(diagmem_max_pool_2d_s16, int16_t, int32_t)
