/* Sum, difference and product in 64 bits, which wrap around. */
#ifndef DIAGMEM_WRAPPING_S64_H
#define DIAGMEM_WRAPPING_S64_H

#include <stdint.h>

static inline int64_t diagmem_wrapping_add_s64(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static inline int64_t diagmem_wrapping_sub_s64(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static inline int64_t diagmem_wrapping_mul_s64(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

#endif
