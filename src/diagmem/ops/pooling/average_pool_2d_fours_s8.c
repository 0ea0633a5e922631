/* AVERAGE_POOL_2D on 8-bit integers, windows of at most 255 pixels, four channels at a time. */
#include "_fours_s8.h"

typedef struct {
    diagmem_window window;
    int32_t low; /* the range that the activation leaves */
    int32_t high;
} diagmem_average_pool_2d_fours_s8_params;

DIAGMEM_IN_ORDER

/* To the nearest integer, halves away from zero. */
static inline int8_t diagmem_mean_s8(const diagmem_average_pool_2d_fours_s8_params *p, int32_t sum, int32_t count) {
    const int32_t half = count / 2;
    return (int8_t)diagmem_clamp((sum > 0 ? sum + half : sum - half) / count, p->low, p->high);
}

static inline void diagmem_four_means_s8(const diagmem_average_pool_2d_fours_s8_params *p, const void *const *rows,
                                         int32_t start, int32_t width, int8_t *out) {
    const int32_t pitch = p->window.in_pitch;
    const int32_t height = p->window.kernel_h;
    uint32_t even = 0;
    uint32_t odd = 0;
    int32_t count = 0;
    for (int32_t k = 0; k < height; ++k) {
        if (rows[k] != NULL) {
            const int8_t *in = (const int8_t *)rows[k] + start;
            for (int32_t left = width; left > 0; --left, in += pitch) {
                const uint32_t four = diagmem_load(in);
                even = diagmem_add_even(even, four);
                odd = diagmem_add_odd(odd, four);
            }
            count += width;
        }
    }
    out[0] = diagmem_mean_s8(p, (int16_t)even, count);
    out[1] = diagmem_mean_s8(p, (int16_t)odd, count);
    out[2] = diagmem_mean_s8(p, (int16_t)(even >> 16), count);
    out[3] = diagmem_mean_s8(p, (int16_t)(odd >> 16), count);
}

static inline int8_t diagmem_one_mean_s8(const diagmem_average_pool_2d_fours_s8_params *p, const void *const *rows,
                                         int32_t start, int32_t width) {
    int32_t sum = 0;
    int32_t count = 0;
    for (int32_t k = 0; k < p->window.kernel_h; ++k) {
        if (rows[k] != NULL) {
            for (int32_t tap = 0; tap < width; ++tap) {
                sum += ((const int8_t *)rows[k])[start + tap * p->window.in_pitch];
            }
            count += width;
        }
    }
    return diagmem_mean_s8(p, sum, count);
}

DIAGMEM_POOL_FOURS(diagmem_average_pool_2d_fours_s8, diagmem_four_means_s8, diagmem_one_mean_s8)

/* Four totals go on into `sums`, or make outputs of all `count` pixels at last. */
static inline void diagmem_keep_four_s8(const diagmem_average_pool_2d_fours_s8_params *p, uint32_t even, uint32_t odd,
                                        int32_t count, int is_last, int32_t *sums, int8_t *out) {
    const int32_t a = sums[0] + (int16_t)even;
    const int32_t b = sums[1] + (int16_t)odd;
    const int32_t c = sums[2] + (int16_t)(even >> 16);
    const int32_t d = sums[3] + (int16_t)(odd >> 16);
    if (is_last) {
        out[0] = diagmem_mean_s8(p, a, count);
        out[1] = diagmem_mean_s8(p, b, count);
        out[2] = diagmem_mean_s8(p, c, count);
        out[3] = diagmem_mean_s8(p, d, count);
        return;
    }
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
}

/* For an image that one row of windows covers: takes the image's rows, one a turn. Totals are kept in `sums`, one for
 * each output, and the last turn makes the outputs. */
static inline void diagmem_average_pool_2d_fours_s8_take(const diagmem_average_pool_2d_fours_s8_params *p, int32_t turn,
                                                         int32_t turns, const int8_t *row, int32_t *sums, int8_t *out) {
    const diagmem_window *const w = &p->window;
    const int32_t depth = w->out_depth;
    const int32_t pitch = w->in_pitch;
    if (turn == 0) {
        memset(sums, 0, (size_t)(w->out_width * depth) * sizeof *sums);
    }
    for (int32_t x = 0; x < w->out_width; ++x, sums += depth, out += w->out_pitch) {
        const diagmem_columns columns = diagmem_columns_of(w, x);
        const int8_t *const start = row + columns.first * pitch;
        const int32_t count = columns.count * turns;
        int32_t c = 0;
        for (; c < (depth & ~3); c += 4) {
            const int8_t *in = start + c;
            uint32_t even = 0;
            uint32_t odd = 0;
            for (int32_t left = columns.count; left > 0; --left, in += pitch) {
                const uint32_t four = diagmem_load(in);
                even = diagmem_add_even(even, four);
                odd = diagmem_add_odd(odd, four);
            }
            diagmem_keep_four_s8(p, even, odd, count, turn == turns - 1, sums + c, out + c);
        }
        for (; c < depth; ++c) {
            for (int32_t tap = 0; tap < columns.count; ++tap) {
                sums[c] += start[tap * pitch + c];
            }
            if (turn == turns - 1) {
                out[c] = diagmem_mean_s8(p, sums[c], count);
            }
        }
    }
}

DIAGMEM_IN_ANY_ORDER
