/* Blocks of eight output channels of one pixel straight from its inputs, and what remains of them in twos. All runs
 * have a multiple of four inputs. */
#ifndef DIAGMEM_PACKED_DOT_S8_H
#define DIAGMEM_PACKED_DOT_S8_H

#include "_packed_s8.h"
#include "_runs.h"

/* 256 times the sums of eight channels. Returns the stream behind their weights. */
typedef const diagmem_words *diagmem_eight_sums(const diagmem_run *runs, const diagmem_run *last,
                                                const diagmem_words *w, int32_t *sums);

typedef struct {
    int32_t channels;
    int32_t is_positive;       /* the least output is that of all negative sums */
#ifdef DIAGMEM_TO_EVEN
    int32_t rounding;
#endif
    diagmem_eight_sums *eight; /* NULL where there are fewer channels: then no code for them is needed */
    const int64_t *blocks; /* of eight channels; then those that remain, in twos, and the constants of these */
} diagmem_packed_s8;

DIAGMEM_IN_ORDER

#define DIAGMEM_ONE_BY_EIGHT(x, i)             \
    do {                                       \
        const uint64_t four = w[i];            \
        uint32_t v = diagmem_low(four);        \
        uint32_t u = diagmem_high(four);       \
        a = diagmem_both(a, x, v);             \
        v = diagmem_even(v);                   \
        b = diagmem_both(b, x, v);             \
        c = diagmem_both(c, x, u);             \
        u = diagmem_even(u);                   \
        d = diagmem_both(d, x, u);             \
        const uint64_t more = w[(i) + 1];      \
        v = diagmem_low(more);                 \
        u = diagmem_high(more);                \
        e = diagmem_both(e, x, v);             \
        v = diagmem_even(v);                   \
        f = diagmem_both(f, x, v);             \
        g = diagmem_both(g, x, u);             \
        u = diagmem_even(u);                   \
        h = diagmem_both(h, x, u);             \
    } while (0)

static DIAGMEM_APART const diagmem_words *diagmem_dot_eight_s8(const diagmem_run *runs, const diagmem_run *last,
                                                               const diagmem_words *w, int32_t *sums) {
    int32_t a = (int32_t)diagmem_low(w[0]), b = (int32_t)diagmem_high(w[0]);
    int32_t c = (int32_t)diagmem_low(w[1]), d = (int32_t)diagmem_high(w[1]);
    int32_t e = (int32_t)diagmem_low(w[2]), f = (int32_t)diagmem_high(w[2]);
    int32_t g = (int32_t)diagmem_low(w[3]), h = (int32_t)diagmem_high(w[3]);
    w += 4;
    do {
        const int8_t *x = runs->at;
        const int8_t *const end = x + runs->count;
        if (runs->count & 4) {
            const uint32_t four_x = diagmem_load(x);
            const uint32_t even = diagmem_even(four_x);
            const uint32_t odd = diagmem_odd(four_x);
            DIAGMEM_ONE_BY_EIGHT(even, 0);
            DIAGMEM_ONE_BY_EIGHT(odd, 2);
            x += 4;
            w += 4;
            DIAGMEM_KEEP(w);
        }
        while (x != end) {
            uint32_t odd = diagmem_load(x);
            uint32_t even = diagmem_even(odd);
            odd = diagmem_odd(odd);
            DIAGMEM_ONE_BY_EIGHT(even, 0);
            DIAGMEM_ONE_BY_EIGHT(odd, 2);
            odd = diagmem_load(x + 4);
            even = diagmem_even(odd);
            odd = diagmem_odd(odd);
            DIAGMEM_ONE_BY_EIGHT(even, 4);
            DIAGMEM_ONE_BY_EIGHT(odd, 6);
            x += 8;
            w += 8;
            DIAGMEM_KEEP(w);
        }
    } while (++runs != last);
    sums[0] = diagmem_minus(a, b), sums[1] = diagmem_times_256(b);
    sums[2] = diagmem_minus(c, d), sums[3] = diagmem_times_256(d);
    sums[4] = diagmem_minus(e, f), sums[5] = diagmem_times_256(f);
    sums[6] = diagmem_minus(g, h), sums[7] = diagmem_times_256(h);
    return w;
}

/* The same of two channels. */
static DIAGMEM_APART const diagmem_words *diagmem_dot_two_s8(const diagmem_run *runs, const diagmem_run *last,
                                                             const diagmem_words *w, int32_t *sums) {
    int32_t a = (int32_t)diagmem_low(w[0]), b = (int32_t)diagmem_high(w[0]);
    ++w;
    do {
        const int8_t *x = runs->at;
        for (const int8_t *const end = x + runs->count; x != end; x += 4, ++w) {
            const uint32_t four = diagmem_load(x);
            const uint32_t even = diagmem_even(four);
            const uint32_t odd = diagmem_odd(four);
            const uint32_t v = diagmem_low(*w);
            const uint32_t u = diagmem_high(*w);
            a = diagmem_both(diagmem_both(a, even, v), odd, u);
            b = diagmem_both(diagmem_both(b, even, diagmem_even(v)), odd, diagmem_even(u));
        }
    } while (++runs != last);
    sums[0] = diagmem_minus(a, b), sums[1] = diagmem_times_256(b);
    return w;
}

#define DIAGMEM_PUT_SUM(i, requantised) \
    out[i] = requantised(sums[i], (int32_t)k[3 * (i)], (int32_t)k[3 * (i) + 1], (int32_t)k[3 * (i) + 2])

#define DIAGMEM_PUT_EIGHT(requantised)   \
    do {                                 \
        DIAGMEM_PUT_SUM(0, requantised); \
        DIAGMEM_PUT_SUM(1, requantised); \
        DIAGMEM_PUT_SUM(2, requantised); \
        DIAGMEM_PUT_SUM(3, requantised); \
        DIAGMEM_PUT_SUM(4, requantised); \
        DIAGMEM_PUT_SUM(5, requantised); \
        DIAGMEM_PUT_SUM(6, requantised); \
        DIAGMEM_PUT_SUM(7, requantised); \
    } while (0)

/* All channels of a pixel: for each block all runs are read, then its outputs are written. */
static DIAGMEM_APART void diagmem_put_packed_s8(const diagmem_run *runs, int32_t count, const diagmem_packed_s8 *to,
                                                int8_t *out) {
    const diagmem_run *const last = runs + count;
    const diagmem_words *w = (const diagmem_words *)to->blocks;
    int32_t sums[8];
    int32_t channels = to->channels;
    for (; channels >= 8; channels -= 8, out += 8) {
        w = to->eight(runs, last, w, sums);
        const diagmem_word *const k = (const diagmem_word *)w;
#ifdef DIAGMEM_TO_EVEN
        if (to->rounding == DIAGMEM_ROUNDED_TO_EVEN) {
            DIAGMEM_PUT_EIGHT(DIAGMEM_EITHER);
        } else
#endif
        if (to->is_positive) {
            DIAGMEM_PUT_EIGHT(DIAGMEM_POSITIVE);
        } else {
            DIAGMEM_PUT_EIGHT(DIAGMEM_ANY_SIGN);
        }
        w += 12;
    }
    for (int32_t i = 0; i < channels; i += 2) {
        w = diagmem_dot_two_s8(runs, last, w, sums + i);
    }
    const diagmem_word *const k = (const diagmem_word *)w;
    for (int32_t i = 0; i < channels; ++i) {
#ifdef DIAGMEM_TO_EVEN
        if (to->rounding == DIAGMEM_ROUNDED_TO_EVEN) {
            DIAGMEM_PUT_SUM(i, DIAGMEM_EITHER);
        } else
#endif
        if (to->is_positive) {
            DIAGMEM_PUT_SUM(i, DIAGMEM_POSITIVE);
        } else {
            DIAGMEM_PUT_SUM(i, DIAGMEM_ANY_SIGN);
        }
    }
}

DIAGMEM_IN_ANY_ORDER

#endif
