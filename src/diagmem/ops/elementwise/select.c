/* SELECT_V2 on elements of any type. For each output element: its inputs are read, then it is written. */
#include "../loops/_move.h"

#define DIAGMEM_SELECT_AXES 5

typedef struct {
    int32_t size[DIAGMEM_SELECT_AXES]; /* of the output, the last axis fastest */
    int32_t condition[DIAGMEM_SELECT_AXES]; /* elements between neighbours */
    int32_t yes[DIAGMEM_SELECT_AXES];
    int32_t no[DIAGMEM_SELECT_AXES];
    int32_t out[DIAGMEM_SELECT_AXES];
    int32_t element; /* bytes */
} diagmem_select_params;

static inline void diagmem_select(const diagmem_select_params *p, const void *condition, const void *yes,
                                  const void *no, void *output) {
    const unsigned char *const truths = condition;
    const unsigned char *const sources[2] = {no, yes};
    unsigned char *const to = output;
    int32_t index[DIAGMEM_SELECT_AXES] = {0};
    int32_t axis = 0;
    while (axis >= 0) {
        int32_t truth = 0;
        int32_t from[2] = {0, 0};
        int32_t at = 0;
        for (axis = 0; axis < DIAGMEM_SELECT_AXES; ++axis) {
            truth += index[axis] * p->condition[axis];
            from[1] += index[axis] * p->yes[axis];
            from[0] += index[axis] * p->no[axis];
            at += index[axis] * p->out[axis];
        }
        {
            const int32_t picked = truths[truth] != 0;
            diagmem_move(to + at * p->element, sources[picked] + from[picked] * p->element, 0, 1, p->element);
        }
        for (axis = DIAGMEM_SELECT_AXES - 1; axis >= 0 && ++index[axis] == p->size[axis]; --axis) {
            index[axis] = 0;
        }
    }
}
