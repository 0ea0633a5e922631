/* LOG_SOFTMAX on single precision. For each row: its elements are read twice, then each is read and written in turn. */
#include "../numerics/_real_f32.h"

typedef struct {
    int32_t rows;
    int32_t size;
} diagmem_log_softmax_f32_params;

static inline void diagmem_log_softmax_f32(const diagmem_log_softmax_f32_params *p, const float *in, float *out) {
    for (int32_t row = 0; row < p->rows; ++row, in += p->size, out += p->size) {
        float largest = in[0];
        for (int32_t c = 1; c < p->size; ++c) {
            largest = in[c] > largest ? in[c] : largest;
        }
        float sum = 0.0f;
        for (int32_t c = 0; c < p->size; ++c) {
            sum += diagmem_exp_f32(in[c] - largest);
        }
        const float logarithm = diagmem_log_f32(sum);
        for (int32_t c = 0; c < p->size; ++c) {
            out[c] = in[c] - largest - logarithm;
        }
    }
}
