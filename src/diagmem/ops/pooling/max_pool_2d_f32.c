/* MAX_POOL_2D on single precision. */
#include "_max_pool_2d.h"

DIAGMEM_MAX_POOL_2D(diagmem_max_pool_2d_f32, float, float)
