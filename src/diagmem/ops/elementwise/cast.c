/* CAST: each element is read, then written as another type. Real numbers lose what is behind the point, and are held
 * within the range of the integers that they become. */
#include "../numerics/_element.h"

typedef struct {
    diagmem_broadcast shape;
    int32_t from; /* a type of _element.h */
    int32_t to;
} diagmem_cast_params;

static inline int64_t diagmem_truncated(float x, int32_t to) {
    static const int64_t low[] = {0, INT8_MIN, 0, INT16_MIN, INT32_MIN, INT64_MIN, 0, 0};
    static const int64_t high[] = {1, INT8_MAX, UINT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX, 0, UINT32_MAX};
    if (to == DIAGMEM_BOOL) {
        return x != 0.0f;
    }
    if (x >= (float)high[to]) {
        return high[to];
    }
    return x > (float)low[to] ? (int64_t)x : x != x ? 0 : low[to];
}

static inline void diagmem_cast_one(const diagmem_cast_params *p, const unsigned char *in, unsigned char *out) {
    if (p->from == DIAGMEM_F32 && p->to == DIAGMEM_F32) {
        diagmem_store_f32(out, diagmem_load_f32(in));
    } else if (p->from == DIAGMEM_F32) {
        diagmem_store_int(out, p->to, diagmem_truncated(diagmem_load_f32(in), p->to));
    } else if (p->to == DIAGMEM_F32) {
        diagmem_store_f32(out, (float)diagmem_load_int(in, p->from));
    } else {
        diagmem_store_int(out, p->to, diagmem_load_int(in, p->from));
    }
}

DIAGMEM_CONVERSION(diagmem_cast, diagmem_cast_params, diagmem_cast_one, p->from, p->to)
