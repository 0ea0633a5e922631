/* SignalStacker. The frames before are written, then each element of the frame is read and written; what the next stack
 * needs is taken from there. Where there is no stack yet, the frame is read first. In the end it is written whether
 * there is one. */
#include <stdint.h>
#include <string.h>

typedef struct {
    int32_t channels;
    int32_t frames; /* of a stack */
    int32_t first;  /* how many frames the first one counts for: it is taken to have been there before */
    int32_t step;   /* frames from one stack to the next */
} diagmem_signal_stacker_params;

/* The state: how many frames of the next stack have come in, and 1 more, or 0 before the first one; the frames
 * before. */
static inline void diagmem_signal_stacker(const diagmem_signal_stacker_params *p, const int16_t *in, int16_t *state,
                                          int16_t *out, uint8_t *is_valid) {
    const int32_t before = (p->frames - 1) * p->channels;
    const int32_t count = state[0] ? state[0] : p->first;
    const int32_t is_whole = count >= p->frames;
    int16_t *const kept = state + 1;
    for (int32_t i = 0; i < before && !state[0]; ++i) {
        kept[i] = in[i % p->channels];
    }
    if (is_whole) {
        for (int32_t i = 0; i < before; ++i) {
            out[i] = kept[i];
        }
        for (int32_t i = 0; i < p->channels; ++i) {
            out[before + i] = in[i];
        }
        memmove(kept, out + p->channels, (size_t)before * sizeof *kept);
    } else {
        memmove(kept, kept + p->channels, (size_t)(before - p->channels) * sizeof *kept);
        memmove(kept + before - p->channels, in, (size_t)p->channels * sizeof *kept);
        memset(out, 0, (size_t)(before + p->channels) * sizeof *out);
    }
    state[0] = (int16_t)(1 + count - (is_whole ? p->step : 0));
    *is_valid = (uint8_t)is_whole;
}
