/* REDUCE_ALL, REDUCE_ANY: for each output element, its fibre is read, then it is written. */
#include "../loops/_fibres.h"

typedef struct {
    diagmem_fibres fibres;
} diagmem_reduce_all_params;

DIAGMEM_REDUCTION(diagmem_reduce_all, diagmem_reduce_all_params, uint8_t, uint8_t, 1, (uint8_t)(total && x), total)
DIAGMEM_REDUCTION(diagmem_reduce_any, diagmem_reduce_all_params, uint8_t, uint8_t, 0, (uint8_t)(total || x), total)
