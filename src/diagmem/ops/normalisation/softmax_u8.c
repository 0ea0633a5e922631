/* SOFTMAX on unsigned 8-bit integers. */
#include "_softmax_8.h"

DIAGMEM_SOFTMAX_8(diagmem_softmax_u8, uint8_t, 0)
