/* DYNAMIC_UPDATE_SLICE on elements of any type. First it is read where the part begins. Then the input is copied, each
 * element after it is read, and then the part over it, likewise. */
#include "../loops/_move.h"
#include "../numerics/_element.h"

#define DIAGMEM_PART_AXES 6

typedef struct {
    int32_t element; /* bytes */
    int32_t axes;
    int32_t index_type;              /* a type of _element.h */
    int32_t size[DIAGMEM_PART_AXES]; /* of the whole */
    int32_t part[DIAGMEM_PART_AXES];
    int32_t step[DIAGMEM_PART_AXES]; /* bytes between neighbours in the whole */
} diagmem_dynamic_update_slice_params;

static inline void diagmem_dynamic_update_slice(const diagmem_dynamic_update_slice_params *p, const void *input,
                                                const void *part, const void *begin, void *output) {
    const unsigned char *from = part;
    unsigned char *to = output;
    int32_t index[DIAGMEM_PART_AXES] = {0};
    int32_t elems = 1;
    int32_t axis;
    const int32_t last = p->axes - 1;
    for (axis = 0; axis < p->axes; ++axis) {
        const unsigned char *const at = (const unsigned char *)begin + axis * diagmem_element_bytes(p->index_type);
        const int64_t first = diagmem_load_int(at, p->index_type);
        const int64_t room = p->size[axis] - p->part[axis];
        to += (int32_t)(first < 0 ? 0 : first < room ? first : room) * p->step[axis];
        elems *= p->size[axis];
    }
    diagmem_move(output, input, p->element, elems, p->element);
    while (axis >= 0) {
        diagmem_move(to, from, p->element, p->part[last], p->element);
        from += p->part[last] * p->element;
        for (axis = last - 1; axis >= 0; --axis) {
            to += p->step[axis];
            if (++index[axis] < p->part[axis]) {
                break;
            }
            to -= p->part[axis] * p->step[axis];
            index[axis] = 0;
        }
    }
}
