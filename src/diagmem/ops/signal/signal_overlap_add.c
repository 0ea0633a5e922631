/* SignalOverlapAdd. Frame by frame: each sample is read and added to what earlier frames have left over; the first ones
 * are written at once, the others are left over in their turn. */
#include <stdint.h>

typedef struct {
    int32_t rows;
    int32_t frames;
    int32_t size; /* of a frame */
    int32_t step; /* from one frame to the next */
} diagmem_signal_overlap_add_params;

static inline int16_t diagmem_overlapped_s16(int16_t a, int16_t b) {
    const int32_t sum = (int32_t)a + b;
    return (int16_t)(sum < INT16_MIN ? INT16_MIN : sum > INT16_MAX ? INT16_MAX : sum);
}

static inline float diagmem_overlapped_f32(float a, float b) {
    return a + b;
}

/* Defines the kernel for elements of this type. */
#define DIAGMEM_SIGNAL_OVERLAP_ADD(suffix, type)                                                                       \
    static inline void diagmem_signal_overlap_add_##suffix(const diagmem_signal_overlap_add_params *p, const type *in, \
                                                           type *state, type *out) {                                   \
        const int32_t left = p->size - p->step;                                                                        \
        for (int32_t row = 0; row < p->rows; ++row, state += left) {                                                   \
            for (int32_t frame = 0; frame < p->frames; ++frame) {                                                      \
                for (int32_t i = 0; i < p->size; ++i) {                                                                \
                    const type sum = diagmem_overlapped_##suffix(i < left ? state[i] : 0, *in++);                      \
                    if (i < p->step) {                                                                                 \
                        *out++ = sum;                                                                                  \
                    } else {                                                                                           \
                        state[i - p->step] = sum;                                                                      \
                    }                                                                                                  \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }

DIAGMEM_SIGNAL_OVERLAP_ADD(s16, int16_t)
DIAGMEM_SIGNAL_OVERLAP_ADD(f32, float)
