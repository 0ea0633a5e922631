/* ZEROS_LIKE, SHAPE: elements that are known beforehand are written; nothing is read. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    int32_t bytes;
    const void *values; /* NULL: zeros */
} diagmem_known_params;

static inline void diagmem_known(const diagmem_known_params *p, void *out) {
    if (p->values == NULL) {
        memset(out, 0, (size_t)p->bytes);
    } else {
        memcpy(out, p->values, (size_t)p->bytes);
    }
}
