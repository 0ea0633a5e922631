/* Any function of one unsigned 8-bit integer: each element is read, then that which it stands for is written. */
#include "_elementwise.h"

typedef struct {
    diagmem_broadcast shape;
    const uint8_t *table; /* of 0, 1, … 255 */
} diagmem_lookup_u8_params;

DIAGMEM_ELEMENTWISE(diagmem_lookup_u8, diagmem_lookup_u8_params, uint8_t, p->table[x])
