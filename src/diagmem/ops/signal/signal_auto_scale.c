/* SignalFftAutoScale: samples shifted to the left as far as 16 bits allow. All are read, then each is read and written,
 * then the number of bits is written. */
#include "../numerics/_element.h"

typedef struct {
    int32_t elems;
} diagmem_signal_auto_scale_params;

static inline void diagmem_signal_auto_scale(const diagmem_signal_auto_scale_params *p, const int16_t *in, int16_t *out,
                                             void *scale) {
    int32_t largest = 0;
    for (int32_t i = 0; i < p->elems; ++i) {
        const int32_t size = in[i] < 0 ? -in[i] : in[i];
        largest = size > largest ? size : largest;
    }
    int32_t bits = 15;
    for (; bits > 0 && largest != 0; largest >>= 1) {
        --bits;
    }
    for (int32_t i = 0; i < p->elems; ++i) {
        out[i] = (int16_t)(in[i] * (1 << bits));
    }
    diagmem_store_int(scale, DIAGMEM_S32, bits);
}
