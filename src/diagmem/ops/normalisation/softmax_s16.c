/* SOFTMAX on 16-bit integers. For each row: its elements are read twice, then each is read and written in turn. */
#include "../numerics/_fixed_exp.h"

typedef struct {
    int32_t rows;
    int32_t size;
    int32_t mantissa; /* differences to steps of 10 / 65535 */
    int32_t shift;
    const int16_t *exponentials; /* of [-10, 0], at 513 places, 15 fractional bits */
    const int16_t *reciprocals;  /* of 1 + [0, 1], likewise */
} diagmem_softmax_s16_params;

/* The value at a place of 16 bits, on straight lines between the entries. */
static inline int32_t diagmem_on_lines(const int16_t *table, int32_t place) {
    const int32_t index = 256 + (place >> 7);
    const int32_t slope = table[index + 1] - table[index];
    return table[index] + ((slope * (place & 0x7F) + 64) >> 7);
}

/* exp((x - largest) * beta), 15 fractional bits. */
static inline int32_t diagmem_softmax_s16_exp(const diagmem_softmax_s16_params *p, int32_t difference) {
    const int32_t place = diagmem_wrapping_add(diagmem_rescale(difference, p->mantissa, p->shift), INT16_MAX);
    return diagmem_on_lines(p->exponentials, diagmem_clamp(place, INT16_MIN, INT16_MAX));
}

static inline void diagmem_softmax_s16(const diagmem_softmax_s16_params *p, const int16_t *in, int16_t *out) {
    for (int32_t row = 0; row < p->rows; ++row, in += p->size, out += p->size) {
        int32_t largest = INT16_MIN;
        for (int32_t c = 0; c < p->size; ++c) {
            largest = in[c] > largest ? in[c] : largest;
        }
        int32_t sum = 0;
        for (int32_t c = 0; c < p->size; ++c) {
            sum += diagmem_softmax_s16_exp(p, in[c] - largest);
        }
        /* The sum as 1 + a fraction of 16 bits, times a power of two. */
        const int32_t zeros = diagmem_leading_zeros((uint32_t)sum);
        const int32_t fraction = (int32_t)((((int64_t)sum << (zeros - 1)) + (1 << 13)) >> 14) - ((1 << 15) + (1 << 16));
        const int32_t scale = diagmem_on_lines(p->reciprocals, diagmem_clamp(fraction, INT16_MIN, INT16_MAX));
        const int32_t right = 31 - zeros;
        for (int32_t c = 0; c < p->size; ++c) {
            const int64_t product = (int64_t)diagmem_softmax_s16_exp(p, in[c] - largest) * scale;
            const int32_t value = (int32_t)((product + ((int64_t)1 << (right - 1))) >> right);
            out[c] = (int16_t)diagmem_clamp(value, 0, INT16_MAX);
        }
    }
}
