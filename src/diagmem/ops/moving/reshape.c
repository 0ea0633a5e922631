/* RESHAPE, SQUEEZE, EXPAND_DIMS where the output does not lie where the input lies: a copy. */
#include <stdint.h>
#include <string.h>

typedef struct {
    int32_t bytes;
} diagmem_reshape_params;

static inline void diagmem_reshape(const diagmem_reshape_params *p, const void *in, void *out) {
    memcpy(out, in, (size_t)p->bytes);
}
