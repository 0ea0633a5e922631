/* SOFTMAX on 8-bit integers by a table of exponentials, rounded once, halves to even. For each row: its elements are
 * read twice, then each is read and written in turn. */
#include <math.h>
#include <stdint.h>

typedef struct {
    int32_t rows;
    int32_t size;
    const float *table; /* exponentials of differences, -255 to 0 */
    float steps;        /* how many units of the output there are in 1 */
    int32_t zero_point;
} diagmem_softmax_to_even_s8_params;

static inline void diagmem_softmax_to_even_s8(const diagmem_softmax_to_even_s8_params *p, const int8_t *in,
                                              int8_t *out) {
    for (int32_t row = 0; row < p->rows; ++row, in += p->size, out += p->size) {
        int32_t largest = in[0];
        for (int32_t c = 1; c < p->size; ++c) {
            largest = in[c] > largest ? in[c] : largest;
        }
        float sum = 0.0f;
        for (int32_t c = 0; c < p->size; ++c) {
            sum += p->table[(uint8_t)(255 - largest + in[c])];
        }
        for (int32_t c = 0; c < p->size; ++c) {
            const float scaled = p->table[(uint8_t)(255 - largest + in[c])] * p->steps;
            const int32_t value = (int32_t)rintf(scaled / sum) + p->zero_point;
            out[c] = (int8_t)(value < INT8_MIN ? INT8_MIN : value > INT8_MAX ? INT8_MAX : value);
        }
    }
}
