/* SVDF. The state moves one step into the past; then, batch by batch, the input is read and the newest of the state is
 * written; then the outputs are written. The input is not read again by then, so that they may lie over it. */
#include <string.h>

#include "../numerics/_fixed_point.h"
#include "../numerics/_real.h"

typedef struct {
    int32_t batches;
    int32_t features;
    int32_t filters;
    int32_t memory; /* steps that a filter remembers */
    int32_t rank;   /* filters of a unit */
    const float *bias; /* may be NULL */
    const float *by_feature;
    const float *by_time;
    float low; /* the range that the activation leaves */
    float high;
} diagmem_svdf_f32_params;

static inline float diagmem_svdf_dot_f32(const float *a, const float *b, int32_t count) {
    float sum = 0.0f;
    for (int32_t k = 0; k < count; ++k) {
        sum += a[k] * b[k];
    }
    return sum;
}

static inline void diagmem_svdf_f32(const diagmem_svdf_f32_params *p, const float *in, float *state, float *out) {
    const int32_t units = p->filters / p->rank;
    memmove(state, state + 1, (size_t)(p->batches * p->filters * p->memory - 1) * sizeof *state);
    for (int32_t n = 0; n < p->batches; ++n, in += p->features) {
        for (int32_t f = 0; f < p->filters; ++f) {
            state[(n * p->filters + f + 1) * p->memory - 1] =
                diagmem_svdf_dot_f32(p->by_feature + f * p->features, in, p->features);
        }
    }
    for (int32_t n = 0; n < p->batches; ++n) {
        for (int32_t u = 0; u < units; ++u, ++out) {
            float total = p->bias ? p->bias[u] : 0.0f;
            for (int32_t r = 0; r < p->rank; ++r, state += p->memory) {
                total += diagmem_svdf_dot_f32(p->by_time + (u * p->rank + r) * p->memory, state, p->memory);
            }
            *out = diagmem_clamp_f32(total, p->low, p->high);
        }
    }
}

/* Defines the kernel `diagmem_svdf_name` for 8-bit data and a state of elements of this type. */
#define DIAGMEM_SVDF(name, type)                                                                                       \
    typedef struct {                                                                                                   \
        int32_t batches, features, filters, memory, rank;                                                              \
        const int32_t *bias;                                                                                           \
        const int8_t *by_feature;                                                                                      \
        const type *by_time;                                                                                           \
        int32_t zero_point, state_zero_point;                                                                          \
        int32_t mantissa, shift;                                                                                       \
        int32_t low, high;                                                                                             \
        diagmem_requantisation output;                                                                                 \
    } diagmem_svdf_##name##_params;                                                                                    \
    static inline type diagmem_svdf_##name##_newest(const diagmem_svdf_##name##_params *p, const int8_t *weights,      \
                                                    const int8_t *in) {                                                \
        int32_t sum = 0;                                                                                               \
        for (int32_t k = 0; k < p->features; ++k) {                                                                    \
            sum += weights[k] * (in[k] - p->zero_point);                                                               \
        }                                                                                                              \
        return (type)(p->state_zero_point +                                                                            \
                      diagmem_clamp(diagmem_rescale(sum, p->mantissa, p->shift), p->low, p->high));                    \
    }                                                                                                                  \
    static inline void diagmem_svdf_##name(const diagmem_svdf_##name##_params *p, const int8_t *in, type *state,       \
                                           int8_t *out) {                                                              \
        const int32_t units = p->filters / p->rank;                                                                    \
        memmove(state, state + 1, (size_t)(p->batches * p->filters * p->memory - 1) * sizeof *state);                  \
        for (int32_t n = 0; n < p->batches; ++n, in += p->features) {                                                  \
            for (int32_t f = 0; f < p->filters; ++f) {                                                                 \
                state[(n * p->filters + f + 1) * p->memory - 1] =                                                      \
                    diagmem_svdf_##name##_newest(p, p->by_feature + f * p->features, in);                              \
            }                                                                                                          \
        }                                                                                                              \
        for (int32_t n = 0; n < p->batches; ++n) {                                                                     \
            const type *weights = p->by_time;                                                                          \
            for (int32_t u = 0; u < units; ++u, ++out) {                                                               \
                uint32_t total = p->bias ? (uint32_t)p->bias[u] : 0; /* may wrap around, as TFLite's does */           \
                for (int32_t k = 0; k < p->rank * p->memory; ++k) {                                                    \
                    total += (uint32_t)(*weights++ * (*state++ - p->state_zero_point));                                \
                }                                                                                                      \
                *out = (int8_t)diagmem_requantise(&p->output, (int32_t)total);                                         \
            }                                                                                                          \
        }                                                                                                              \
    }

DIAGMEM_SVDF(s8, int8_t)
DIAGMEM_SVDF(s8_s16, int16_t)
