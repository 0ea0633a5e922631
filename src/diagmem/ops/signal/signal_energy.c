/* SignalEnergy: for each frequency its two parts are read, then the sum of their squares is written. */
#include "../numerics/_element.h"

typedef struct {
    int32_t elems;
    int32_t start; /* the frequencies that are asked for; others are 0 */
    int32_t end;
} diagmem_signal_energy_params;

static inline void diagmem_signal_energy(const diagmem_signal_energy_params *p, const void *input, void *output) {
    const unsigned char *in = input;
    unsigned char *out = output;
    for (int32_t i = 0; i < p->elems; ++i, in += 4, out += 4) {
        int64_t energy = 0;
        if (i >= p->start && i < p->end) {
            const int64_t real = diagmem_load_int(in, DIAGMEM_S16);
            const int64_t imaginary = diagmem_load_int(in + 2, DIAGMEM_S16);
            energy = real * real + imaginary * imaginary;
        }
        diagmem_store_int(out, DIAGMEM_U32, energy);
    }
}
