/* MAX_POOL_2D on 8-bit integers, four channels at a time. */
#include "_fours_s8.h"

typedef struct {
    diagmem_window window;
    int32_t low; /* the range that the activation leaves */
    int32_t high;
} diagmem_max_pool_2d_fours_s8_params;

DIAGMEM_IN_ORDER

/* The largest of each of four channels, not below the range. */
static inline void diagmem_four_largest_s8(const diagmem_max_pool_2d_fours_s8_params *p, const void *const *rows,
                                           int32_t start, int32_t width, int8_t *out) {
    const int32_t pitch = p->window.in_pitch;
    const int32_t height = p->window.kernel_h;
    uint32_t largest = (uint32_t)(uint8_t)p->low * 0x01010101u;
    for (int32_t k = 0; k < height; ++k) {
        if (rows[k] != NULL) {
            const int8_t *in = (const int8_t *)rows[k] + start;
            for (int32_t left = width; left > 0; --left, in += pitch) {
                largest = diagmem_larger(largest, diagmem_load(in));
            }
        }
    }
    for (int32_t i = 0; i < 4; ++i, largest >>= 8) {
        out[i] = (int8_t)((int8_t)largest > p->high ? p->high : (int8_t)largest);
    }
}

static inline int8_t diagmem_one_largest_s8(const diagmem_max_pool_2d_fours_s8_params *p, const void *const *rows,
                                            int32_t start, int32_t width) {
    int32_t largest = p->low;
    for (int32_t k = 0; k < p->window.kernel_h; ++k) {
        for (int32_t tap = 0; rows[k] != NULL && tap < width; ++tap) {
            const int32_t value = ((const int8_t *)rows[k])[start + tap * p->window.in_pitch];
            largest = value > largest ? value : largest;
        }
    }
    return (int8_t)(largest > p->high ? p->high : largest);
}

DIAGMEM_POOL_FOURS(diagmem_max_pool_2d_fours_s8, diagmem_four_largest_s8, diagmem_one_largest_s8)

DIAGMEM_IN_ANY_ORDER
