/* SignalWindow: each sample of a frame times its weight, held within 16 bits. Each element is read, then written. */
#include <stdint.h>

typedef struct {
    int32_t frames;
    int32_t size;
    int32_t shift; /* bits by which products are made smaller */
    const int16_t *weights;
} diagmem_signal_window_params;

static inline void diagmem_signal_window(const diagmem_signal_window_params *p, const int16_t *in, int16_t *out) {
    for (int32_t frame = 0; frame < p->frames; ++frame, in += p->size, out += p->size) {
        for (int32_t i = 0; i < p->size; ++i) {
            const int32_t product = ((int32_t)in[i] * p->weights[i]) >> p->shift;
            out[i] = (int16_t)(product < INT16_MIN ? INT16_MIN : product > INT16_MAX ? INT16_MAX : product);
        }
    }
}
