/* Any function of one 8-bit integer: each element is read, then that which it stands for is written. */
#include "_elementwise.h"

typedef struct {
    diagmem_broadcast shape;
    const int8_t *table; /* of -128, -127, … 127 */
} diagmem_lookup_s8_params;

DIAGMEM_ELEMENTWISE(diagmem_lookup_s8, diagmem_lookup_s8_params, int8_t, p->table[x + 128])
