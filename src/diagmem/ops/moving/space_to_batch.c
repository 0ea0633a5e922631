/* SPACE_TO_BATCH_ND on elements of any type: the output's images hold every n-th pixel of the input. The output is
 * written in order, each element after it is read. */
#include "../loops/_move.h"

typedef struct {
    int32_t element; /* bytes */
    int32_t batches; /* of the input */
    int32_t in_height, in_width;
    int32_t out_height, out_width;
    int32_t block_h, block_w;
    int32_t pad_top, pad_left;
    int32_t depth;     /* elements of a pixel */
    const void *value; /* one element, that which is added around the input */
} diagmem_space_to_batch_params;

/* One row of the output; its first pixel is that in column `first` of the input row, which may be outside. `in`: NULL
 * where the whole row is. */
static inline unsigned char *diagmem_space_to_batch_row(const diagmem_space_to_batch_params *p, const unsigned char *in,
                                                        int32_t first, unsigned char *out) {
    for (int32_t x = first; x < first + p->out_width * p->block_w; x += p->block_w) {
        const int is_inside = in != NULL && x >= 0 && x < p->in_width;
        const unsigned char *const pixel = is_inside ? in + x * p->depth * p->element : p->value;
        out = diagmem_move(out, pixel, is_inside ? p->element : 0, p->depth, p->element);
    }
    return out;
}

/* One image of the output, that of the pixels in row `top` and column `left` of each block. */
static inline unsigned char *diagmem_space_to_batch_image(const diagmem_space_to_batch_params *p,
                                                          const unsigned char *in, int32_t top, int32_t left,
                                                          unsigned char *out) {
    for (int32_t y = top - p->pad_top; y < top - p->pad_top + p->out_height * p->block_h; y += p->block_h) {
        const int is_inside = y >= 0 && y < p->in_height;
        const unsigned char *const row = is_inside ? in + y * p->in_width * p->depth * p->element : NULL;
        out = diagmem_space_to_batch_row(p, row, left - p->pad_left, out);
    }
    return out;
}

static inline void diagmem_space_to_batch(const diagmem_space_to_batch_params *p, const void *input, void *output) {
    const int32_t image = p->in_height * p->in_width * p->depth * p->element;
    unsigned char *out = output;
    for (int32_t top = 0; top < p->block_h; ++top) {
        for (int32_t left = 0; left < p->block_w; ++left) {
            for (int32_t n = 0; n < p->batches; ++n) {
                out = diagmem_space_to_batch_image(p, (const unsigned char *)input + n * image, top, left, out);
            }
        }
    }
}
