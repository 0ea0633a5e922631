/* SignalFramer. Frame by frame, what is kept of the samples before is written, then each new sample is read and
 * written; what is kept for the next frame is taken from there, and those samples that are too new even for this one
 * are read. Where there is no frame yet, new samples are read first. In the end it is written whether there were
 * frames. */
#include <stdint.h>
#include <string.h>

typedef struct {
    int32_t rows;
    int32_t frames; /* of a row */
    int32_t size;   /* of a frame */
    int32_t step;   /* from one to the next */
    int32_t kept;   /* samples of a row from run to run */
    int32_t missing; /* steps before there is a frame */
} diagmem_signal_framer_params;

/* The state: how many steps have come in, and what is kept of each row. */
static inline void diagmem_signal_framer(const diagmem_signal_framer_params *p, const int16_t *in, int16_t *state,
                                         int16_t *out, uint8_t *is_valid) {
    const int32_t used = p->size - p->kept; /* of the new samples, in a frame */
    const int32_t seen = state[0];
    int16_t *kept = state + 1;
    for (int32_t row = 0; row < p->rows; ++row, kept += p->kept) {
        for (int32_t frame = 0; frame < p->frames; ++frame, in += p->step, out += p->size) {
            if (seen + frame < p->missing) {
                memmove(kept, kept + p->step, (size_t)(p->kept - p->step) * sizeof *kept);
                memmove(kept + p->kept - p->step, in, (size_t)p->step * sizeof *kept);
                memset(out, 0, (size_t)p->size * sizeof *out);
                continue;
            }
            for (int32_t i = 0; i < p->kept; ++i) {
                out[i] = kept[i];
            }
            for (int32_t i = 0; i < used; ++i) {
                out[p->kept + i] = in[i];
            }
            if (p->kept) {
                const int32_t again = p->size - p->step; /* samples of this frame that the next one has too */
                memmove(kept, out + p->step, (size_t)again * sizeof *kept);
                memmove(kept + again, in + used, (size_t)(p->step - used) * sizeof *kept);
            }
        }
    }
    state[0] = (int16_t)(seen + p->frames < p->missing ? seen + p->frames : p->missing);
    *is_valid = seen >= p->missing;
}
