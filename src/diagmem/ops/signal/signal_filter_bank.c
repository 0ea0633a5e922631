/* SignalFilterBank: channels of energies. Band by band its frequencies are read, and go into its own channel and into
 * the next one; then its own is written, but for the first band, which has none. */
#include "../numerics/_element.h"

typedef struct {
    int32_t channels;
    const int16_t *weights;   /* of a frequency in its own channel */
    const int16_t *unweights; /* in the next one */
    const int16_t *frequency_starts; /* of each band, the first of which has no channel */
    const int16_t *weight_starts;
    const int16_t *widths;
} diagmem_signal_filter_bank_params;

static inline void diagmem_signal_filter_bank(const diagmem_signal_filter_bank_params *p, const void *input,
                                              void *output) {
    unsigned char *out = output;
    uint64_t own = 0;
    for (int32_t band = 0; band <= p->channels; ++band) {
        const unsigned char *in = (const unsigned char *)input + 4 * p->frequency_starts[band];
        const int16_t *const weights = p->weights + p->weight_starts[band];
        const int16_t *const unweights = p->unweights + p->weight_starts[band];
        uint64_t next = 0;
        for (int32_t i = 0; i < p->widths[band]; ++i, in += 4) {
            const uint64_t energy = (uint64_t)diagmem_load_int(in, DIAGMEM_U32);
            own += (uint64_t)weights[i] * energy;
            next += (uint64_t)unweights[i] * energy;
        }
        if (band > 0) {
            memcpy(out, &own, sizeof own);
            out += sizeof own;
        }
        own = next;
    }
}
