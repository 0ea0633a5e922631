/* LOGICAL_AND, LOGICAL_OR. For each output element: its inputs are read, then it is written. */
#include "_pairwise.h"

typedef struct {
    diagmem_broadcast shape;
} diagmem_logical_params;

DIAGMEM_PAIRWISE(diagmem_logical_and, diagmem_logical_params, uint8_t, uint8_t, x != 0 && y != 0)
DIAGMEM_PAIRWISE(diagmem_logical_or, diagmem_logical_params, uint8_t, uint8_t, x != 0 || y != 0)
