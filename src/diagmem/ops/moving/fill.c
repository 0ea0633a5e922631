/* FILL on elements of any type: the value is read once, before all is written. */
#include "../loops/_move.h"

typedef struct {
    int32_t element; /* bytes */
    int32_t count;
} diagmem_fill_params;

static inline void diagmem_fill(const diagmem_fill_params *p, const void *value, void *out) {
    unsigned char kept[8];
    memcpy(kept, value, (size_t)p->element);
    diagmem_move(out, kept, 0, p->count, p->element);
}
