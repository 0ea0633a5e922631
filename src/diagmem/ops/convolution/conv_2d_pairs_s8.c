/* CONV_2D on 8-bit integers, two pixels and four channels at a time, with weights that two channels share. */
#include "../numerics/_packed_pairs_s8.h"
#include "_pairs_s8.h"

typedef struct {
    diagmem_window window;
    diagmem_paired paired;
    diagmem_two_pixels *two;
    diagmem_one_pixel *one;
    const int64_t *blocks; /* of four channels, the last one filled up */
} diagmem_conv_2d_pairs_s8_params;

static DIAGMEM_APART void diagmem_conv_2d_pairs_s8_put(const void *params, const diagmem_words *buffer, int32_t pixels,
                                                       int8_t *out) {
    const diagmem_conv_2d_pairs_s8_params *const p = params;
    const int32_t depth = p->window.out_depth;
    const int32_t pitch = p->window.out_pitch;
    const diagmem_words *const end = buffer + pixels * p->paired.size / 4;
    const diagmem_words *w = (const diagmem_words *)p->blocks;
    int8_t *const rest_at = out + (depth & ~3);
    if (rest_at != out) {
        w = pixels == 2 ? p->two(buffer, end, w, out, rest_at, pitch) : p->one(buffer, end, w, out, rest_at);
    }
    if (depth % 4 != 0) {
        int8_t rest[8];
        pixels == 2 ? p->two(buffer, end, w, rest, rest + 4, 4) : p->one(buffer, end, w, rest, rest + 4);
        for (int32_t i = 0; i < pixels; ++i) {
            memcpy(rest_at + i * pitch, rest + 4 * i, (size_t)(depth % 4));
        }
    }
}

static inline void diagmem_conv_2d_pairs_s8_row(const diagmem_conv_2d_pairs_s8_params *p, const void *const *rows,
                                                int8_t *out, void *buffer) {
    diagmem_pairs_row(&p->window, &p->paired, rows, out, buffer, diagmem_conv_2d_pairs_s8_put, p);
}

static inline void diagmem_conv_2d_pairs_s8(const diagmem_conv_2d_pairs_s8_params *p, const int8_t *in, int8_t *out,
                                            void *buffer) {
    diagmem_pairs(&p->window, &p->paired, in, out, buffer, diagmem_conv_2d_pairs_s8_put, p);
}
