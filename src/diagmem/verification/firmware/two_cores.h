/* Included before the model's own code: what the cores of Arm's MPS2 board AN521 do at a barrier. */
#include "together.h"

#define MODEL_WAKE() __asm__ volatile("dsb\n\tsev" ::: "memory")
#define MODEL_RELAX() __asm__ volatile("wfe" ::: "memory")
