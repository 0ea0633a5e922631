/* SignalFilterBankLog: each number is read, then its natural logarithm, scaled, is written: straight lines between the
 * entries of a table. */
#include "../numerics/_element.h"

typedef struct {
    int32_t elems;
    int32_t correction_bits; /* by which numbers are shifted to the left */
    int32_t scale;
    const uint16_t *table; /* how far log2(1 + x) lies above x, 16 bits behind the point, for 128 segments */
} diagmem_signal_log_params;

static inline uint32_t diagmem_scaled_log(const diagmem_signal_log_params *p, uint32_t x) {
    int32_t whole = 0;
    while (x >> whole > 1) {
        ++whole;
    }
    const uint32_t over = x - ((uint32_t)1 << whole);
    const int32_t rest = (int32_t)(whole < 16 ? over << (16 - whole) : over >> (whole - 16));
    const int32_t segment = rest >> 9;
    const int32_t first = p->table[segment];
    const int32_t line = ((p->table[segment + 1] - first) * (rest - segment * 512)) >> 16;
    const uint32_t base_2 = ((uint32_t)whole << 16) + (uint32_t)(rest + first + line);
    const uint32_t natural = (uint32_t)(((uint64_t)45426 * base_2 + 32768) >> 16);
    return ((uint32_t)p->scale * natural + 32768) >> 16;
}

static inline void diagmem_signal_log(const diagmem_signal_log_params *p, const void *input, void *output) {
    const unsigned char *in = input;
    unsigned char *out = output;
    for (int32_t i = 0; i < p->elems; ++i, in += 4, out += 2) {
        const uint32_t x = (uint32_t)diagmem_load_int(in, DIAGMEM_U32) << p->correction_bits;
        const uint32_t logarithm = x > 1 ? diagmem_scaled_log(p, x) : 0;
        diagmem_store_int(out, DIAGMEM_S16, logarithm < INT16_MAX ? logarithm : INT16_MAX);
    }
}
