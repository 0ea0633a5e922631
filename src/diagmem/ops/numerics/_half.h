/* Real numbers of half precision, as weights may be kept in flash. */
#ifndef DIAGMEM_HALF_H
#define DIAGMEM_HALF_H

#include <stdint.h>
#include <string.h>

/* The number in single precision, which has room for all of them. */
static inline float diagmem_half(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t power = (half >> 10) & 31u;
    const uint32_t fraction = half & 1023u;
    uint32_t bits = sign | ((power + 112u) << 23) | (fraction << 13);
    float found;
    if (power == 0) {
        found = (float)fraction * 5.9604644775390625e-8f; /* 2 to the -24th */
        return sign ? -found : found;
    }
    if (power == 31) {
        bits = sign | 0x7f800000u | (fraction << 13);
    }
    memcpy(&found, &bits, sizeof found);
    return found;
}

#endif
