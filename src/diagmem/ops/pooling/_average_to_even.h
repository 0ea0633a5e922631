/* Averages of 8-bit integers of two scales over windows: real numbers in between, rounded once, halves to even. */
#ifndef DIAGMEM_AVERAGE_TO_EVEN_H
#define DIAGMEM_AVERAGE_TO_EVEN_H

#include "../numerics/_to_even.h"
#include "_pool_2d.h"

typedef struct {
    diagmem_window window;
    int32_t low; /* the range that the activation leaves */
    int32_t high;
    float in_scale;
    int32_t in_zero_point;
    float scale;
    int32_t zero_point;
    int32_t lower; /* by how much stored values are below those that are rounded */
} diagmem_average_to_even;

/* An output from a sum of real numbers. */
static inline int8_t diagmem_mean_to_even(const diagmem_average_to_even *p, float sum, int32_t count) {
    const float units = sum / (float)count / p->scale + (float)(p->zero_point + p->lower);
    if (!(units > (float)(p->low + p->lower))) {
        return (int8_t)p->low;
    }
    return (int8_t)(units >= (float)(p->high + p->lower) ? p->high : diagmem_nearest_even(units) - p->lower);
}

/* The mean of `width` pixels of each row that is inside the image, from element `start` on. */
static inline int8_t diagmem_one_mean_to_even(const diagmem_average_to_even *p, const void *const *rows,
                                              int32_t start, int32_t width) {
    float sum = 0.0f;
    int32_t count = 0;
    for (int32_t k = 0; k < p->window.kernel_h; ++k) {
        const int8_t *const row = rows[k];
        if (row != NULL) {
            for (int32_t tap = 0; tap < width; ++tap) {
                const float real = p->in_scale * (float)(row[start + tap * p->window.in_pitch] - p->in_zero_point);
                sum += real;
            }
            count += width;
        }
    }
    return diagmem_mean_to_even(p, sum, count);
}

#endif
