/* SOFTMAX on 8-bit integers. */
#include "_softmax_8.h"

DIAGMEM_SOFTMAX_8(diagmem_softmax_s8, int8_t, INT8_MIN)
