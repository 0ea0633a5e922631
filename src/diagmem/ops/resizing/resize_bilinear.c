/* RESIZE_BILINEAR. For each output pixel and channel: the four input pixels around its place are read, then it is
 * written. */
#include <stdint.h>

typedef struct {
    int32_t batches;
    int32_t in_height, in_width;
    int32_t in_image, in_row, in_pitch; /* elements between neighbouring images, rows, pixels */
    int32_t out_height, out_width;
    int32_t out_image, out_row, out_pitch;
    int32_t depth;
    const int32_t *rows; /* of each output row: the input row above its place and that below, which may be the same */
    const int32_t *cols; /* likewise the columns left and right */
} diagmem_resize;

/* The share of the lower or right neighbour, for each output row and column: integers with 10 bits behind the point. */
typedef struct {
    diagmem_resize shape;
    const int32_t *row_shares;
    const int32_t *col_shares;
} diagmem_resize_bilinear_int_params;

typedef struct {
    diagmem_resize shape;
    const float *row_shares;
    const float *col_shares;
} diagmem_resize_bilinear_f32_params;

/* A sum with 20 bits behind the point to the nearest integer, halves away from zero. */
static inline int32_t diagmem_blend_s8(int32_t y, int32_t x, int32_t a, int32_t b, int32_t c, int32_t d) {
    const int32_t sum = a * (1024 - y) * (1024 - x) + c * y * (1024 - x) + b * (1024 - y) * x + d * y * x;
    return (sum > 0 ? sum + (1 << 19) : sum - (1 << 19)) / (1 << 20);
}

static inline int64_t diagmem_blend_s16(int64_t y, int64_t x, int64_t a, int64_t b, int64_t c, int64_t d) {
    const int64_t sum = a * (1024 - y) * (1024 - x) + c * y * (1024 - x) + b * (1024 - y) * x + d * y * x;
    return (sum > 0 ? sum + (1 << 19) : sum - (1 << 19)) / (1 << 20);
}

static inline float diagmem_blend_f32(float y, float x, float a, float b, float c, float d) {
    return a * (1.0f - y) * (1.0f - x) + c * y * (1.0f - x) + b * (1.0f - y) * x + d * y * x;
}

/* To the nearest integer, halves upwards. */
static inline float diagmem_blend_u8(float y, float x, float a, float b, float c, float d) {
    return diagmem_blend_f32(y, x, a, b, c, d) + 0.5f;
}

/* `name`_row makes output row y from the input rows above and below it. */
#define DIAGMEM_RESIZE_BILINEAR(name, params, type, share_type, blend)                                                \
    static inline void name##_row(const params *p, int32_t y, const type *above, const type *below, type *out) {     \
        const diagmem_resize *const s = &p->shape;                                                                   \
        const share_type share = p->row_shares[y];                                                                   \
        for (int32_t x = 0; x < s->out_width; ++x, out += s->out_pitch) {                                            \
            const int32_t left = s->cols[2 * x] * s->in_pitch;                                                       \
            const int32_t right = s->cols[2 * x + 1] * s->in_pitch;                                                  \
            for (int32_t c = 0; c < s->depth; ++c) {                                                                 \
                out[c] = (type)blend(share, p->col_shares[x], above[left + c], above[right + c], below[left + c],    \
                                     below[right + c]);                                                              \
            }                                                                                                        \
        }                                                                                                            \
    }                                                                                                                \
    static inline void name(const params *p, const type *in, type *out) {                                            \
        const diagmem_resize *const s = &p->shape;                                                                   \
        for (int32_t n = 0; n < s->batches; ++n) {                                                                   \
            for (int32_t y = 0; y < s->out_height; ++y) {                                                            \
                const type *const above = in + n * s->in_image + s->rows[2 * y] * s->in_row;                         \
                const type *const below = in + n * s->in_image + s->rows[2 * y + 1] * s->in_row;                     \
                type *const row = out + n * s->out_image + y * s->out_row;                                           \
                name##_row(p, y, above, below, row);                                                                 \
            }                                                                                                        \
        }                                                                                                            \
    }

DIAGMEM_RESIZE_BILINEAR(diagmem_resize_bilinear_s8, diagmem_resize_bilinear_int_params, int8_t, int32_t,
                        diagmem_blend_s8)
DIAGMEM_RESIZE_BILINEAR(diagmem_resize_bilinear_s16, diagmem_resize_bilinear_int_params, int16_t, int32_t,
                        diagmem_blend_s16)
DIAGMEM_RESIZE_BILINEAR(diagmem_resize_bilinear_u8, diagmem_resize_bilinear_f32_params, uint8_t, float,
                        diagmem_blend_u8)
DIAGMEM_RESIZE_BILINEAR(diagmem_resize_bilinear_f32, diagmem_resize_bilinear_f32_params, float, float,
                        diagmem_blend_f32)
