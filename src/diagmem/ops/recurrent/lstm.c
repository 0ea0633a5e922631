/* UNIDIRECTIONAL_SEQUENCE_LSTM. One row of the output after the other, one unit of it after the other: the row of the
 * input is read whole, the unit's cell is read and written, then the unit is written. The hidden state is read at the
 * first time only, later the output row before; at the end it becomes the last one. */
#include <string.h>

#include "../numerics/_fixed_point.h"
#include "../numerics/_real.h"
#include "../numerics/_real_f32.h"

typedef struct {
    int32_t mantissa;
    int32_t shift;
} diagmem_lstm_multiplier;

/* Defines what goes through all rows, by the function `diagmem_lstm_name_unit` that makes one unit, and ends with the
 * hidden state. Its parameters begin with batches, times, features, units, time_major. */
#define DIAGMEM_LSTM_ROWS(name, type, cell_type)                                                                    \
    static inline void diagmem_lstm_##name(const diagmem_lstm_##name##_params *p, const type *in, type *hidden,     \
                                           cell_type *cell, type *out) {                                            \
        const int32_t rows = p->batches * p->times;                                                                 \
        const int32_t apart = p->time_major ? p->batches : 1;                                                       \
        for (int32_t r = 0; r < rows; ++r) {                                                                        \
            const int32_t n = p->time_major ? r % p->batches : r / p->times;                                        \
            const int32_t time = p->time_major ? r / p->batches : r % p->times;                                     \
            const type *const before = time > 0 ? out + (r - apart) * p->units : hidden + n * p->units;             \
            for (int32_t j = 0; j < p->units; ++j) {                                                                \
                out[r * p->units + j] = diagmem_lstm_##name##_unit(p, j, in + r * p->features, before,              \
                                                                   cell + n * p->units + j);                        \
            }                                                                                                       \
        }                                                                                                           \
        for (int32_t n = 0; n < p->batches; ++n) {                                                                  \
            const int32_t last = p->time_major ? rows - p->batches + n : (n + 1) * p->times - 1;                    \
            memmove(hidden + n * p->units, out + last * p->units, (size_t)p->units * sizeof *out);                  \
        }                                                                                                           \
    }

typedef struct {
    const float *weights;
    const float *recurrent;
    const float *bias;
} diagmem_lstm_gate_f32;

typedef struct {
    int32_t batches, times, features, units, time_major;
    diagmem_lstm_gate_f32 forget, input, cell, output;
    float clip; /* 0: none */
} diagmem_lstm_f32_params;

static inline float diagmem_lstm_dot_f32(const float *a, const float *b, int32_t count) {
    float sum = 0.0f;
    for (int32_t k = 0; k < count; ++k) {
        sum += a[k] * b[k];
    }
    return sum;
}

static inline float diagmem_lstm_before_f32(const diagmem_lstm_f32_params *p, const diagmem_lstm_gate_f32 *gate,
                                            int32_t j, const float *in, const float *hidden) {
    const float first = diagmem_lstm_dot_f32(gate->weights + j * p->features, in, p->features) + gate->bias[j];
    return first + diagmem_lstm_dot_f32(gate->recurrent + j * p->units, hidden, p->units);
}

static inline float diagmem_lstm_f32_unit(const diagmem_lstm_f32_params *p, int32_t j, const float *in,
                                          const float *hidden, float *cell) {
    const float forget = diagmem_logistic_of_f32(diagmem_lstm_before_f32(p, &p->forget, j, in, hidden));
    const float given = diagmem_logistic_of_f32(diagmem_lstm_before_f32(p, &p->input, j, in, hidden));
    const float kept = *cell * forget;
    const float sum = kept + given * diagmem_tanh_of_f32(diagmem_lstm_before_f32(p, &p->cell, j, in, hidden));
    *cell = p->clip > 0.0f ? diagmem_clamp_f32(sum, -p->clip, p->clip) : sum;
    return diagmem_tanh_of_f32(*cell) * diagmem_logistic_of_f32(diagmem_lstm_before_f32(p, &p->output, j, in, hidden));
}

DIAGMEM_LSTM_ROWS(f32, float, float)

static inline int32_t diagmem_lstm_held(int64_t x) {
    return (int32_t)(x < INT16_MIN ? INT16_MIN : x > INT16_MAX ? INT16_MAX : x);
}

/* Straight lines between the entries of a table. */
static inline int32_t diagmem_lstm_line(const uint16_t *table, int32_t size, int32_t bits, int32_t beyond) {
    const int32_t index = size >> bits;
    return index >= 255 ? beyond
                        : ((int32_t)table[index] << bits) +
                              (size & ((1 << bits) - 1)) * ((int32_t)table[index + 1] - (int32_t)table[index]);
}

/* From 12 bits behind the point to 15. */
static inline int32_t diagmem_lstm_sigmoid(const uint16_t *table, int32_t x) {
    const int32_t place = x * 3;
    const int32_t value = diagmem_lstm_line(table, place < 0 ? -place : place, 9, 0x7fff << 10);
    return (place >= 0 ? value + (1 << 9) : (1 << 25) - value + (1 << 9) - 1) >> 10;
}

/* From 12 - shift bits behind the point to 15. */
static inline int32_t diagmem_lstm_tanh(const uint16_t *table, int32_t x, int32_t shift) {
    const int32_t place = shift >= 0 ? x * (3 << shift) : (x * 3 + (1 << (-shift - 1))) >> -shift;
    const int32_t value = diagmem_lstm_line(table, place < 0 ? -place : place, 8, 0xffff << 8) - (1 << 23);
    return (place >= 0 ? value + (1 << 7) : -value + (1 << 7) - 1) >> 8;
}

static inline int32_t diagmem_lstm_product(int32_t x, int32_t y, const diagmem_lstm_multiplier *by) {
    return diagmem_rescale(x * y, by->mantissa, by->shift);
}

/* A sum with its bias: of 32 bits it may wrap around, as TFLite's does; of 64 none comes near. */
static inline int32_t diagmem_lstm_sum_s8(int32_t bias, int32_t total) {
    return diagmem_wrapping_add(bias, total);
}

static inline int64_t diagmem_lstm_sum_s16(int64_t bias, int64_t total) {
    return bias + total;
}

static inline int64_t diagmem_lstm_rescale_s8(int64_t x, int32_t mantissa, int32_t shift) {
    return diagmem_rescale((int32_t)x, mantissa, shift);
}

/* A sum of 64 bits times a multiplier that is cut to 16 bits. */
static inline int64_t diagmem_lstm_rescale_s16(int64_t x, int32_t mantissa, int32_t shift) {
    const int64_t factor = mantissa < 0x7fff0000 ? (mantissa + (1 << 15)) >> 16 : 0x7fff;
    return (x * factor + ((int64_t)1 << (14 - shift))) >> (15 - shift);
}

/* Defines the kernel `diagmem_lstm_name` for 8-bit weights and data of this type; sums have `sum` type. */
#define DIAGMEM_LSTM(name, type, sum)                                                                               \
    typedef struct {                                                                                                \
        const int8_t *weights, *recurrent;                                                                          \
        const sum *bias;                                                                                            \
        int32_t mantissa, shift;                                                                                    \
        int32_t hidden_mantissa, hidden_shift;                                                                      \
    } diagmem_lstm_gate_##name;                                                                                     \
    typedef struct {                                                                                                \
        int32_t batches, times, features, units, time_major;                                                        \
        diagmem_lstm_gate_##name forget, input, cell, output;                                                       \
        diagmem_lstm_multiplier kept, given, output_scale;                                                          \
        int32_t zero_point, hidden_zero_point;                                                                      \
        int32_t tanh_shift;                                                                                         \
        int32_t clip; /* 0: none */                                                                                 \
        const uint16_t *table;                                                                                      \
    } diagmem_lstm_##name##_params;                                                                                 \
    static inline sum diagmem_lstm_dot_##name(const int8_t *weights, const type *x, int32_t count, int32_t zero) {  \
        sum total = 0;                                                                                              \
        for (int32_t k = 0; k < count; ++k) {                                                                       \
            total += weights[k] * (x[k] - zero);                                                                    \
        }                                                                                                           \
        return total;                                                                                               \
    }                                                                                                               \
    static inline int32_t diagmem_lstm_before_##name(const diagmem_lstm_##name##_params *p,                         \
                                                     const diagmem_lstm_gate_##name *gate, int32_t j,               \
                                                     const type *in, const type *hidden) {                          \
        const sum from_input =                                                                                      \
            diagmem_lstm_dot_##name(gate->weights + j * p->features, in, p->features, p->zero_point);               \
        const sum first = diagmem_lstm_sum_##name(gate->bias[j], from_input);                                       \
        const sum second =                                                                                          \
            diagmem_lstm_dot_##name(gate->recurrent + j * p->units, hidden, p->units, p->hidden_zero_point);        \
        return diagmem_lstm_held(                                                                                   \
            (int64_t)diagmem_lstm_held(diagmem_lstm_rescale_##name(first, gate->mantissa, gate->shift)) +           \
            diagmem_lstm_held(diagmem_lstm_rescale_##name(second, gate->hidden_mantissa, gate->hidden_shift)));     \
    }                                                                                                               \
    static inline type diagmem_lstm_##name##_unit(const diagmem_lstm_##name##_params *p, int32_t j, const type *in, \
                                                  const type *hidden, int16_t *cell) {                              \
        const int32_t forget =                                                                                      \
            diagmem_lstm_sigmoid(p->table, diagmem_lstm_before_##name(p, &p->forget, j, in, hidden));               \
        const int32_t input =                                                                                       \
            diagmem_lstm_sigmoid(p->table, diagmem_lstm_before_##name(p, &p->input, j, in, hidden));                \
        const int32_t fresh =                                                                                       \
            diagmem_lstm_tanh(p->table, diagmem_lstm_before_##name(p, &p->cell, j, in, hidden), 0);                 \
        const int32_t output =                                                                                      \
            diagmem_lstm_sigmoid(p->table, diagmem_lstm_before_##name(p, &p->output, j, in, hidden));               \
        const int32_t kept = diagmem_lstm_held(diagmem_lstm_product(forget, *cell, &p->kept));                      \
        const int32_t given = diagmem_lstm_held(diagmem_lstm_product(input, fresh, &p->given));                     \
        int32_t now = diagmem_lstm_held((int64_t)kept + given);                                                     \
        if (p->clip > 0) {                                                                                          \
            now = diagmem_clamp(now, -p->clip, p->clip);                                                            \
        }                                                                                                           \
        *cell = (int16_t)now;                                                                                       \
        now = diagmem_lstm_product(diagmem_lstm_tanh(p->table, now, p->tanh_shift), output, &p->output_scale);      \
        now = diagmem_wrapping_add(now, p->hidden_zero_point);                                                      \
        return (type)diagmem_clamp(now, sizeof(type) == 1 ? INT8_MIN : INT16_MIN,                                   \
                                   sizeof(type) == 1 ? INT8_MAX : INT16_MAX);                                       \
    }                                                                                                               \
    DIAGMEM_LSTM_ROWS(name, type, int16_t)

DIAGMEM_LSTM(s8, int8_t, int32_t)
DIAGMEM_LSTM(s16, int16_t, int64_t)
