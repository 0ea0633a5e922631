/* What sums and products of 8-bit integers are made of that are rounded once. */
#ifndef DIAGMEM_ONCE_S8_H
#define DIAGMEM_ONCE_S8_H

#include "../loops/_broadcast.h"
#include "../numerics/_steps.h"

typedef struct {
    diagmem_broadcast shape;
    int32_t first; /* what the inputs are multiplied by */
    int32_t second;
    int32_t start;
    diagmem_steps output;
} diagmem_add_once_s8_params;

typedef struct {
    diagmem_broadcast shape;
    int32_t first_zero_point;
    int32_t second_zero_point;
    int32_t factor; /* with 18 more bits behind the point */
    int32_t start;
    diagmem_steps output;
} diagmem_mul_once_s8_params;

typedef diagmem_add_once_s8_params diagmem_add_once_mve_s8_params;
typedef diagmem_mul_once_s8_params diagmem_mul_once_mve_s8_params;

static inline int32_t diagmem_plane_of_sums(const diagmem_add_once_s8_params *p, int32_t x, int32_t y) {
    return p->first * x + p->second * y + p->start;
}

static inline int8_t diagmem_sum_once(const diagmem_add_once_s8_params *p, int32_t x, int32_t y) {
    return diagmem_on_steps(&p->output, diagmem_plane_of_sums(p, x, y), x, y);
}

static inline int32_t diagmem_plane_of_products(const diagmem_mul_once_s8_params *p, int32_t x, int32_t y) {
    const int32_t product = (x - p->first_zero_point) * (y - p->second_zero_point);
    return diagmem_upper_product(product * (1 << 14), p->factor) + p->start;
}

static inline int8_t diagmem_product_once(const diagmem_mul_once_s8_params *p, int32_t x, int32_t y) {
    return diagmem_on_steps(&p->output, diagmem_plane_of_products(p, x, y), x, y);
}

#endif
