/* RESIZE_NEAREST_NEIGHBOR, BATCH_TO_SPACE_ND, MIRROR_PAD on elements of any type: where an element comes from is a sum
 * of one number for each axis of the output. The output is written in order, each element after it is read. */
#include "_move.h"

#define DIAGMEM_GATHERED_AXES 4

typedef struct {
    int32_t element;                     /* bytes */
    int32_t run;                         /* elements that lie side by side in the input as in the output */
    int32_t size[DIAGMEM_GATHERED_AXES]; /* of the output's axes before the run, the last one fastest */
    int32_t step[DIAGMEM_GATHERED_AXES]; /* bytes between neighbours in the output */
    const int32_t *places; /* for every index of the first axis, of the second, …: bytes from the input's start */
} diagmem_gathered_params;

/* One row of the output: the last axis. */
static inline void diagmem_gathered_row(const diagmem_gathered_params *p, const unsigned char *in,
                                        const int32_t *places, unsigned char *out) {
    for (int32_t x = 0; x < p->size[3]; ++x) {
        diagmem_move(out + x * p->step[3], in + places[x], p->element, p->run, p->element);
    }
}

static inline void diagmem_gathered(const diagmem_gathered_params *p, const void *input, void *output) {
    const unsigned char *const in = input;
    unsigned char *const out = output;
    const int32_t *const first = p->places;
    const int32_t *const second = first + p->size[0];
    const int32_t *const third = second + p->size[1];
    for (int32_t i = 0; i < p->size[0]; ++i) {
        for (int32_t j = 0; j < p->size[1]; ++j) {
            for (int32_t k = 0; k < p->size[2]; ++k) {
                diagmem_gathered_row(p, in + first[i] + second[j] + third[k], third + p->size[2],
                                     out + i * p->step[0] + j * p->step[1] + k * p->step[2]);
            }
        }
    }
}
