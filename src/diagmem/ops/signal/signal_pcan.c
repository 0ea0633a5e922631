/* SignalPCAN: gain control by an estimate of the noise. For each channel: it and its noise are read, then it is
 * written. */
#include <stdint.h>

typedef struct {
    int32_t elems;
    int32_t shift;        /* from channel times gain to a ratio with 12 bits behind the point */
    const int16_t *gains; /* of the noises 0, 1 and 2, and a parabola for every octave from there on */
} diagmem_signal_pcan_params;

static inline int16_t diagmem_pcan_gain(const int16_t *gains, uint32_t noise) {
    if (noise <= 2) {
        return gains[noise];
    }
    int32_t bits = 0;
    while (bits < 32 && noise >> bits != 0) {
        ++bits;
    }
    const int16_t *const octave = gains + 4 * bits - 6;
    const int32_t place = (int32_t)((bits < 11 ? noise << (11 - bits) : noise >> (bits - 11)) & 0x3FF);
    const int32_t slope = ((octave[2] * place) >> 5) + octave[1] * 32;
    return (int16_t)(((slope * place + (1 << 14)) >> 15) + octave[0]);
}

/* With 6 bits behind the point: a quarter of the square of a small ratio, 1 less than a larger one. */
static inline uint32_t diagmem_pcan_shrunk(uint32_t ratio) {
    return ratio < (2u << 12) ? (ratio * ratio) >> 20 : (ratio >> 6) - (1u << 6);
}

static inline void diagmem_signal_pcan(const diagmem_signal_pcan_params *p, const uint32_t *in, const uint32_t *noise,
                                       uint32_t *out) {
    for (int32_t i = 0; i < p->elems; ++i) {
        const uint32_t gain = (uint32_t)diagmem_pcan_gain(p->gains, noise[i]);
        out[i] = diagmem_pcan_shrunk((uint32_t)(((uint64_t)in[i] * gain) >> p->shift));
    }
}
