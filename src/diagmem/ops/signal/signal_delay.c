/* SignalDelay. Each sample of a row is read, then the one that it pushes out is written. What is still to come out is a
 * ring while a row lasts; then it is turned so that the oldest comes first. */
#include <stdint.h>

typedef struct {
    int32_t rows;
    int32_t size;
    int32_t length; /* samples by which a row lags behind */
} diagmem_signal_delay_params;

static inline void diagmem_delay_reverse(int16_t *first, int16_t *end) {
    for (; first < end; ++first) {
        const int16_t kept = *first;
        *first = *--end;
        *end = kept;
    }
}

static inline void diagmem_signal_delay(const diagmem_signal_delay_params *p, const int16_t *in, int16_t *state,
                                        int16_t *out) {
    for (int32_t row = 0; row < p->rows; ++row, state += p->length) {
        int32_t oldest = 0;
        for (int32_t i = 0; i < p->size; ++i) {
            const int16_t sample = *in++;
            *out++ = p->length ? state[oldest] : sample;
            if (p->length) {
                state[oldest] = sample;
                oldest = oldest + 1 < p->length ? oldest + 1 : 0;
            }
        }
        diagmem_delay_reverse(state, state + oldest);
        diagmem_delay_reverse(state + oldest, state + p->length);
        diagmem_delay_reverse(state, state + p->length);
    }
}
