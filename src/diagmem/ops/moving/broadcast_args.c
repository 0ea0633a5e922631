/* BROADCAST_ARGS: for each axis the sizes of both shapes are read, then the one that is not 1 is written. */
#include <stdint.h>

typedef struct {
    int32_t first; /* axes of the first shape */
    int32_t second;
} diagmem_broadcast_args_params;

static inline void diagmem_broadcast_args(const diagmem_broadcast_args_params *p, const int32_t *first,
                                          const int32_t *second, int32_t *out) {
    const int32_t axes = p->first > p->second ? p->first : p->second;
    for (int32_t i = 0; i < axes; ++i) {
        const int32_t a = i < axes - p->first ? 1 : first[i - (axes - p->first)];
        const int32_t b = i < axes - p->second ? 1 : second[i - (axes - p->second)];
        out[i] = a == 1 ? b : a;
    }
}
