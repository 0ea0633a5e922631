/* SignalFilterBankSquareRoot: each energy is read, then its root, made smaller by some bits, is written. */
#include "../numerics/_element.h"

typedef struct {
    int32_t elems;
} diagmem_signal_square_root_params;

/* The nearest whole number, unless it needs one bit more than half of those of x: 16 up to 2^32, else 32. */
static inline uint32_t diagmem_root_of_energy(uint64_t x) {
    const uint32_t largest = x >> 32 == 0 ? UINT16_MAX : UINT32_MAX;
    uint64_t rest = x;
    uint64_t root = 0;
    for (uint64_t bit = (uint64_t)1 << 62; bit != 0; bit >>= 2) {
        if (rest >= root + bit) {
            rest -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
    }
    return (uint32_t)(rest > root && root != largest ? root + 1 : root);
}

static inline void diagmem_signal_square_root(const diagmem_signal_square_root_params *p, const void *input,
                                              const void *scale, void *output) {
    const unsigned char *in = input;
    unsigned char *out = output;
    const uint32_t bits = (uint32_t)diagmem_load_int(scale, DIAGMEM_S32);
    for (int32_t i = 0; i < p->elems; ++i, in += 8, out += 4) {
        uint64_t energy;
        memcpy(&energy, in, sizeof energy);
        diagmem_store_int(out, DIAGMEM_U32, bits > 31 ? 0 : diagmem_root_of_energy(energy) >> bits);
    }
}
