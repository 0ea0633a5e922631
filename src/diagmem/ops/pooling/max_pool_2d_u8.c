/* MAX_POOL_2D on unsigned 8-bit integers. */
#include "_max_pool_2d.h"

DIAGMEM_MAX_POOL_2D(diagmem_max_pool_2d_u8, uint8_t, int32_t)
