/* ADD and MUL on 8-bit integers whose results are rounded once, halves to even. For each output element: its inputs are
 * read, then it is written. */
#include "_once_s8.h"
#include "_pairwise.h"

DIAGMEM_PAIRWISE(diagmem_add_once_s8, diagmem_add_once_s8_params, int8_t, int8_t,
                 diagmem_sum_once(p, x, y))
DIAGMEM_PAIRWISE(diagmem_mul_once_s8, diagmem_mul_once_s8_params, int8_t, int8_t,
                 diagmem_product_once(p, x, y))
