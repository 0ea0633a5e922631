/* Blocks of four output channels of two pixels, or one, from a buffer of widened inputs. The buffer holds words of two
 * inputs, those of two pixels in turn. */
#ifndef DIAGMEM_PACKED_PAIRS_S8_H
#define DIAGMEM_PACKED_PAIRS_S8_H

#include "_packed_s8.h"

DIAGMEM_IN_ORDER

#define DIAGMEM_TWO_BY_FOUR(i)            \
    do {                                  \
        const uint64_t pq = x[i];         \
        const uint64_t vu = w[i];         \
        const uint32_t p = diagmem_low(pq);  \
        const uint32_t q = diagmem_high(pq); \
        uint32_t v = diagmem_low(vu);     \
        uint32_t u = diagmem_high(vu);    \
        a0 = diagmem_both(a0, p, v);      \
        a1 = diagmem_both(a1, q, v);      \
        v = diagmem_even(v);              \
        b0 = diagmem_both(b0, p, v);      \
        b1 = diagmem_both(b1, q, v);      \
        c0 = diagmem_both(c0, p, u);      \
        c1 = diagmem_both(c1, q, u);      \
        u = diagmem_even(u);              \
        d0 = diagmem_both(d0, p, u);      \
        d1 = diagmem_both(d1, q, u);      \
    } while (0)

#define DIAGMEM_ONE_WORD(p, i)            \
    do {                                  \
        const uint64_t vu = w[i];         \
        uint32_t v = diagmem_low(vu);     \
        uint32_t u = diagmem_high(vu);    \
        a0 = diagmem_both(a0, p, v);      \
        v = diagmem_even(v);              \
        b0 = diagmem_both(b0, p, v);      \
        c0 = diagmem_both(c0, p, u);      \
        u = diagmem_even(u);              \
        d0 = diagmem_both(d0, p, u);      \
    } while (0)

#define DIAGMEM_ONE_BY_FOUR(i)                             \
    do {                                                   \
        const uint64_t pq = x[i];                          \
        DIAGMEM_ONE_WORD(diagmem_low(pq), 2 * (i));        \
        DIAGMEM_ONE_WORD(diagmem_high(pq), 2 * (i) + 1);   \
    } while (0)

#define DIAGMEM_PUT_TWO(i, first, second, requantised)          \
    do {                                                        \
        const int32_t m = (int32_t)constants[3 * (i)];          \
        const int32_t k = (int32_t)constants[3 * (i) + 1];      \
        const int32_t s = (int32_t)constants[3 * (i) + 2];      \
        const int32_t p = (first);                              \
        const int32_t q = (second);                             \
        out[i] = requantised(p, m, k, s);                       \
        out[(i) + pitch] = requantised(q, m, k, s);             \
    } while (0)

#define DIAGMEM_PUT_ONE(i, first, requantised)                  \
    do {                                                        \
        const int32_t m = (int32_t)constants[3 * (i)];          \
        const int32_t k = (int32_t)constants[3 * (i) + 1];      \
        const int32_t s = (int32_t)constants[3 * (i) + 2];      \
        const int32_t p = (first);                              \
        out[i] = requantised(p, m, k, s);                       \
    } while (0)

/* Makes the channels from `out` to `stop`, a multiple of four of them, of two pixels that lie `pitch` apart. The buffer
 * ends at `end`. Returns the stream behind the last block. */
typedef const diagmem_words *diagmem_two_pixels(const diagmem_words *from, const diagmem_words *end,
                                                const diagmem_words *w, int8_t *out, const int8_t *stop,
                                                int32_t pitch);

/* The same of one pixel, from a buffer of its words alone. */
typedef const diagmem_words *diagmem_one_pixel(const diagmem_words *from, const diagmem_words *end,
                                               const diagmem_words *w, int8_t *out, const int8_t *stop);

#define DIAGMEM_EIGHT_INPUTS    \
    do {                        \
        DIAGMEM_TWO_BY_FOUR(0); \
        DIAGMEM_TWO_BY_FOUR(1); \
        DIAGMEM_TWO_BY_FOUR(2); \
        DIAGMEM_TWO_BY_FOUR(3); \
        x += 4;                 \
        w += 4;                 \
        DIAGMEM_KEEP(w);        \
    } while (0)

#define DIAGMEM_SIXTEEN_INPUTS  \
    do {                        \
        DIAGMEM_TWO_BY_FOUR(0); \
        DIAGMEM_TWO_BY_FOUR(1); \
        DIAGMEM_TWO_BY_FOUR(2); \
        DIAGMEM_TWO_BY_FOUR(3); \
        DIAGMEM_TWO_BY_FOUR(4); \
        DIAGMEM_TWO_BY_FOUR(5); \
        DIAGMEM_TWO_BY_FOUR(6); \
        DIAGMEM_TWO_BY_FOUR(7); \
        x += 8;                 \
        w += 8;                 \
        DIAGMEM_KEEP(w);        \
    } while (0)

#define DIAGMEM_EIGHT_OF_ONE    \
    do {                        \
        DIAGMEM_ONE_BY_FOUR(0); \
        DIAGMEM_ONE_BY_FOUR(1); \
        x += 2;                 \
        w += 4;                 \
        DIAGMEM_KEEP(w);        \
    } while (0)

#define DIAGMEM_SIXTEEN_OF_ONE  \
    do {                        \
        DIAGMEM_ONE_BY_FOUR(0); \
        DIAGMEM_ONE_BY_FOUR(1); \
        DIAGMEM_ONE_BY_FOUR(2); \
        DIAGMEM_ONE_BY_FOUR(3); \
        x += 4;                 \
        w += 8;                 \
        DIAGMEM_KEEP(w);        \
    } while (0)

/* What the sums of four channels of a pixel start from. */
#define DIAGMEM_STARTS()                                                       \
    int32_t a0 = (int32_t)diagmem_low(w[0]), b0 = (int32_t)diagmem_high(w[0]); \
    int32_t c0 = (int32_t)diagmem_low(w[1]), d0 = (int32_t)diagmem_high(w[1]); \
    w += 2

#define DIAGMEM_FITTED_STARTS()                       \
    int32_t a0 = (int32_t)diagmem_low(w[0]), b0 = 0;  \
    int32_t c0 = (int32_t)diagmem_high(w[0]), d0 = 0; \
    w += 1

#define DIAGMEM_PUT_FOUR_TWICE(requantised)                                            \
    do {                                                                               \
        const diagmem_word *const constants = (const diagmem_word *)w;                 \
        DIAGMEM_PUT_TWO(0, diagmem_minus(a0, b0), diagmem_minus(a1, b1), requantised); \
        DIAGMEM_PUT_TWO(1, diagmem_times_256(b0), diagmem_times_256(b1), requantised); \
        DIAGMEM_PUT_TWO(2, diagmem_minus(c0, d0), diagmem_minus(c1, d1), requantised); \
        DIAGMEM_PUT_TWO(3, diagmem_times_256(d0), diagmem_times_256(d1), requantised); \
        w += 6;                                                                        \
    } while (0)

#define DIAGMEM_PUT_FOUR_ONCE(requantised)                             \
    do {                                                               \
        const diagmem_word *const constants = (const diagmem_word *)w; \
        DIAGMEM_PUT_ONE(0, diagmem_minus(a0, b0), requantised);        \
        DIAGMEM_PUT_ONE(1, diagmem_times_256(b0), requantised);        \
        DIAGMEM_PUT_ONE(2, diagmem_minus(c0, d0), requantised);        \
        DIAGMEM_PUT_ONE(3, diagmem_times_256(d0), requantised);        \
        w += 6;                                                        \
    } while (0)

/* Multipliers of channels 0 to 3; a start stands behind that of channel 1, and of channel 3. `put_a` and
 * `put_b` make outputs. */
#define DIAGMEM_PUT_FITTED_TWICE_BY(put_a, put_b, shift)                                                  \
    do {                                                                                         \
        uint32_t m, n, k;                                                                        \
        DIAGMEM_TAKE(m, n, w);                                                                   \
        out[0] = put_a(diagmem_minus(a0, b0), (int32_t)m, shift);                                  \
        out[pitch] = put_a(diagmem_minus(a1, b1), (int32_t)m, shift);                              \
        DIAGMEM_TAKE(k, m, w);                                                                   \
        out[1] = put_b(diagmem_plus_256_times((int32_t)k, b0), (int32_t)n, shift);                 \
        out[pitch + 1] = put_b(diagmem_plus_256_times((int32_t)k, b1), (int32_t)n, shift);         \
        out[2] = put_a(diagmem_minus(c0, d0), (int32_t)m, shift);                                  \
        out[pitch + 2] = put_a(diagmem_minus(c1, d1), (int32_t)m, shift);                          \
        DIAGMEM_TAKE(n, k, w);                                                                   \
        out[3] = put_b(diagmem_plus_256_times((int32_t)k, d0), (int32_t)n, shift);                 \
        out[pitch + 3] = put_b(diagmem_plus_256_times((int32_t)k, d1), (int32_t)n, shift);         \
    } while (0)

#define DIAGMEM_PUT_FITTED_ONCE_BY(put_a, put_b, shift)                                   \
    do {                                                                         \
        uint32_t m, n, k;                                                        \
        DIAGMEM_TAKE(m, n, w);                                                   \
        out[0] = put_a(diagmem_minus(a0, b0), (int32_t)m, shift);                  \
        DIAGMEM_TAKE(k, m, w);                                                   \
        out[1] = put_b(diagmem_plus_256_times((int32_t)k, b0), (int32_t)n, shift); \
        out[2] = put_a(diagmem_minus(c0, d0), (int32_t)m, shift);                  \
        DIAGMEM_TAKE(n, k, w);                                                   \
        out[3] = put_b(diagmem_plus_256_times((int32_t)k, d0), (int32_t)n, shift); \
    } while (0)

#define DIAGMEM_PUT_FITTED_TWICE(shift) DIAGMEM_PUT_FITTED_TWICE_BY(DIAGMEM_FITTED, DIAGMEM_FITTED, shift)
#define DIAGMEM_PUT_FITTED_ONCE(shift) DIAGMEM_PUT_FITTED_ONCE_BY(DIAGMEM_FITTED, DIAGMEM_FITTED, shift)

/* Defines `name` for windows of a multiple of so many inputs as `inputs` takes. */
#define DIAGMEM_TWO_PIXELS(name, starts, inputs, put, how)                                                  \
    static DIAGMEM_APART const diagmem_words *name(const diagmem_words *from, const diagmem_words *end,     \
                                                   const diagmem_words *w, int8_t *out, const int8_t *stop, \
                                                   int32_t pitch) {                                         \
        do {                                                                                                \
            const diagmem_words *x = from;                                                                  \
            starts();                                                                                       \
            int32_t a1 = a0, b1 = b0, c1 = c0, d1 = d0;                                                     \
            DIAGMEM_KEEP(x);                                                                                \
            do {                                                                                            \
                inputs;                                                                                     \
            } while (x != end);                                                                             \
            put(how);                                                                                       \
            DIAGMEM_KEEP(w);                                                                                \
            out += 4;                                                                                       \
        } while (out != stop);                                                                              \
        return w;                                                                                           \
    }

#define DIAGMEM_ONE_PIXEL(name, starts, inputs, put, how)                                                     \
    static DIAGMEM_APART const diagmem_words *name(const diagmem_words *from, const diagmem_words *end,       \
                                                   const diagmem_words *w, int8_t *out, const int8_t *stop) { \
        do {                                                                                                  \
            const diagmem_words *x = from;                                                                    \
            starts();                                                                                         \
            DIAGMEM_KEEP(x);                                                                                  \
            do {                                                                                              \
                inputs;                                                                                       \
            } while (x != end);                                                                               \
            put(how);                                                                                         \
            DIAGMEM_KEEP(w);                                                                                  \
            out += 4;                                                                                         \
        } while (out != stop);                                                                                \
        return w;                                                                                             \
    }

/* Both for 8 and for 16 inputs. */
#define DIAGMEM_PIXELS(kind, starts, put_two, put_one, how)                                 \
    DIAGMEM_TWO_PIXELS(diagmem_two_##kind##_8_s8, starts, DIAGMEM_EIGHT_INPUTS, put_two, how)    \
    DIAGMEM_TWO_PIXELS(diagmem_two_##kind##_16_s8, starts, DIAGMEM_SIXTEEN_INPUTS, put_two, how) \
    DIAGMEM_ONE_PIXEL(diagmem_one_##kind##_8_s8, starts, DIAGMEM_EIGHT_OF_ONE, put_one, how)     \
    DIAGMEM_ONE_PIXEL(diagmem_one_##kind##_16_s8, starts, DIAGMEM_SIXTEEN_OF_ONE, put_one, how)

DIAGMEM_PIXELS(fitted_8, DIAGMEM_FITTED_STARTS, DIAGMEM_PUT_FITTED_TWICE, DIAGMEM_PUT_FITTED_ONCE, 8)
DIAGMEM_PIXELS(fitted_10, DIAGMEM_FITTED_STARTS, DIAGMEM_PUT_FITTED_TWICE, DIAGMEM_PUT_FITTED_ONCE, 10)
DIAGMEM_PIXELS(fitted_12, DIAGMEM_FITTED_STARTS, DIAGMEM_PUT_FITTED_TWICE, DIAGMEM_PUT_FITTED_ONCE, 12)
DIAGMEM_PIXELS(fitted_14, DIAGMEM_FITTED_STARTS, DIAGMEM_PUT_FITTED_TWICE, DIAGMEM_PUT_FITTED_ONCE, 14)
#ifdef DIAGMEM_TO_EVEN
/* Blocks with channels that must be rounded have an odd second multiplier. */
#define DIAGMEM_PUT_MIXED_TWICE(shift)                                      \
    do {                                                                    \
        if (diagmem_high(w[0]) & 1u) {                                       \
            DIAGMEM_PUT_FITTED_TWICE_BY(DIAGMEM_MIXED_A, DIAGMEM_MIXED_B, shift);     \
        } else {                                                            \
            DIAGMEM_PUT_FITTED_TWICE(shift);                                \
        }                                                                   \
    } while (0)

#define DIAGMEM_PUT_MIXED_ONCE(shift) DIAGMEM_PUT_FITTED_ONCE_BY(DIAGMEM_MIXED_A, DIAGMEM_MIXED_B, shift)

DIAGMEM_PIXELS(mixed_8, DIAGMEM_FITTED_STARTS, DIAGMEM_PUT_MIXED_TWICE, DIAGMEM_PUT_MIXED_ONCE, 8)
DIAGMEM_PIXELS(mixed_10, DIAGMEM_FITTED_STARTS, DIAGMEM_PUT_MIXED_TWICE, DIAGMEM_PUT_MIXED_ONCE, 10)
DIAGMEM_PIXELS(mixed_12, DIAGMEM_FITTED_STARTS, DIAGMEM_PUT_MIXED_TWICE, DIAGMEM_PUT_MIXED_ONCE, 12)
DIAGMEM_PIXELS(mixed_14, DIAGMEM_FITTED_STARTS, DIAGMEM_PUT_MIXED_TWICE, DIAGMEM_PUT_MIXED_ONCE, 14)
#endif
DIAGMEM_PIXELS(positive, DIAGMEM_STARTS, DIAGMEM_PUT_FOUR_TWICE, DIAGMEM_PUT_FOUR_ONCE, DIAGMEM_POSITIVE)
DIAGMEM_PIXELS(any, DIAGMEM_STARTS, DIAGMEM_PUT_FOUR_TWICE, DIAGMEM_PUT_FOUR_ONCE, DIAGMEM_ANY_SIGN)

DIAGMEM_IN_ANY_ORDER

#endif
