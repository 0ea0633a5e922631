/* SignalFilterBankSpectralSubtraction. For each channel: it is read, its noise is brought up to date, then the channel
 * without noise and the noise are written. */
#include <stdint.h>

typedef struct {
    uint32_t alternate_one_minus_smoothing; /* weights of odd channels */
    uint32_t alternate_smoothing;
    int32_t clamping;              /* noise is held below the signal */
    uint32_t min_signal_remaining; /* of a signal, whatever the noise */
    int32_t num_channels;
    uint32_t one_minus_smoothing; /* the weight of the noise before */
    uint32_t smoothing;           /* the weight of the signal */
    int32_t smoothing_bits;       /* by which noise is finer than signals */
    int32_t spectral_subtraction_bits; /* behind the point of weights */
} diagmem_signal_spectral_subtraction_params;

static inline void diagmem_signal_spectral_subtraction(const diagmem_signal_spectral_subtraction_params *p,
                                                       const uint32_t *in, uint32_t *state, uint32_t *out,
                                                       uint32_t *noise) {
    const int32_t bits = p->spectral_subtraction_bits;
    for (int32_t i = 0; i < p->num_channels; ++i) {
        const uint64_t own = i % 2 ? p->alternate_smoothing : p->smoothing;
        const uint64_t old = i % 2 ? p->alternate_one_minus_smoothing : p->one_minus_smoothing;
        const uint32_t signal = in[i];
        const uint32_t scaled = signal << p->smoothing_bits;
        const uint32_t average = (uint32_t)((scaled * own + state[i] * old) >> bits);
        const uint32_t below = average < scaled ? average : scaled;
        const uint32_t least = (uint32_t)(((uint64_t)signal * p->min_signal_remaining) >> bits);
        const uint32_t rest = (scaled - below) >> p->smoothing_bits;
        state[i] = p->clamping ? below : average;
        out[i] = rest > least ? rest : least;
        noise[i] = state[i];
    }
}
