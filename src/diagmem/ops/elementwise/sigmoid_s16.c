/* LOGISTIC, TANH on 16-bit integers: straight lines between the entries of a table. Each element is read, then
 * written. */
#include "_elementwise.h"

typedef struct {
    diagmem_broadcast shape;
    int32_t multiplier; /* to places in the table, with 9 bits behind the point for LOGISTIC, 8 for TANH */
    int32_t shift;
    const uint16_t *table; /* 65536 * sigmoid(i / 24) */
} diagmem_sigmoid_s16_params;

static inline int32_t diagmem_sigmoid_place(const diagmem_sigmoid_s16_params *p, int32_t x) {
    const int32_t half = p->shift > 0 ? 1 << (p->shift - 1) : 0;
    return (x * p->multiplier + half) >> p->shift;
}

/* sigmoid(|place| / 24) with 16 + bits fractional bits, for a place with `bits`. */
static inline int32_t diagmem_sigmoid_of(const diagmem_sigmoid_s16_params *p, int32_t place, int32_t bits) {
    const int32_t size = place < 0 ? -place : place;
    const int32_t index = size >> bits;
    if (index >= 255) {
        return bits == 9 ? 0x7FFF << 10 : 0xFFFF << 8;
    }
    return (p->table[index] << bits) + (size & ((1 << bits) - 1)) * (p->table[index + 1] - p->table[index]);
}

static inline int32_t diagmem_logistic_of_s16(const diagmem_sigmoid_s16_params *p, int32_t x) {
    const int32_t place = diagmem_sigmoid_place(p, x);
    const int32_t value = diagmem_sigmoid_of(p, place, 9);
    return (place >= 0 ? value + (1 << 9) : (1 << 25) - value + (1 << 9) - 1) >> 10;
}

static inline int32_t diagmem_tanh_of_s16(const diagmem_sigmoid_s16_params *p, int32_t x) {
    const int32_t place = diagmem_sigmoid_place(p, x);
    const int32_t value = diagmem_sigmoid_of(p, place, 8) - (1 << 23);
    return (place >= 0 ? value + (1 << 7) : -value + (1 << 7) - 1) >> 8;
}

DIAGMEM_ELEMENTWISE(diagmem_logistic_s16, diagmem_sigmoid_s16_params, int16_t, diagmem_logistic_of_s16(p, x))
DIAGMEM_ELEMENTWISE(diagmem_tanh_s16, diagmem_sigmoid_s16_params, int16_t, diagmem_tanh_of_s16(p, x))
