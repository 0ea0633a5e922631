/* PAD and PADV2 on elements of any type: the output is written in order, each element after it is read. */
#include "../loops/_move.h"

typedef struct {
    int32_t element; /* bytes */
    int32_t size[4]; /* of the input */
    int32_t before[4];
    int32_t after[4];
    const void *value; /* one element, that which is added */
} diagmem_pad_params;

static inline int diagmem_pad_inside(const diagmem_pad_params *p, int32_t axis, int32_t index) {
    return index >= p->before[axis] && index < p->before[axis] + p->size[axis];
}

/* One row of the output; `in` is NULL where the whole row is added. */
static inline unsigned char *diagmem_pad_row(const diagmem_pad_params *p, const unsigned char *in, unsigned char *out) {
    if (in == NULL) {
        return diagmem_move(out, p->value, 0, p->before[3] + p->size[3] + p->after[3], p->element);
    }
    out = diagmem_move(out, p->value, 0, p->before[3], p->element);
    out = diagmem_move(out, in, p->element, p->size[3], p->element);
    return diagmem_move(out, p->value, 0, p->after[3], p->element);
}

/* `input` is NULL where everything is added. */
static inline void diagmem_pad(const diagmem_pad_params *p, const void *input, void *output) {
    const unsigned char *in = input;
    unsigned char *out = output;
    for (int32_t i = 0; i < p->before[0] + p->size[0] + p->after[0]; ++i) {
        for (int32_t j = 0; j < p->before[1] + p->size[1] + p->after[1]; ++j) {
            for (int32_t k = 0; k < p->before[2] + p->size[2] + p->after[2]; ++k) {
                const int is_inside =
                    diagmem_pad_inside(p, 0, i) && diagmem_pad_inside(p, 1, j) && diagmem_pad_inside(p, 2, k);
                if (is_inside && in != NULL) {
                    out = diagmem_pad_row(p, in, out);
                    in += p->size[3] * p->element;
                } else {
                    out = diagmem_pad_row(p, NULL, out);
                }
            }
        }
    }
}
