/* Elements of any type, read and written as bytes: a compiler then takes it that input and output may overlap, which it
 * does not for pointers to different types. */
#ifndef DIAGMEM_ELEMENT_H
#define DIAGMEM_ELEMENT_H

#include <string.h>

#include "../loops/_broadcast.h"

enum {
    DIAGMEM_BOOL,
    DIAGMEM_S8,
    DIAGMEM_U8,
    DIAGMEM_S16,
    DIAGMEM_S32,
    DIAGMEM_S64,
    DIAGMEM_F32,
    DIAGMEM_U32
};

static inline int32_t diagmem_element_bytes(int32_t type) {
    return type == DIAGMEM_S64 ? 8 : type == DIAGMEM_S16 ? 2 : type >= DIAGMEM_S32 ? 4 : 1;
}

static inline float diagmem_load_f32(const unsigned char *at) {
    float value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline void diagmem_store_f32(unsigned char *at, float value) {
    memcpy(at, &value, sizeof value);
}

static inline int64_t diagmem_load_int(const unsigned char *at, int32_t type) {
    if (type == DIAGMEM_S8) {
        return *(const int8_t *)at;
    }
    if (type == DIAGMEM_S16) {
        int16_t value;
        memcpy(&value, at, sizeof value);
        return value;
    }
    if (type == DIAGMEM_S32) {
        int32_t value;
        memcpy(&value, at, sizeof value);
        return value;
    }
    if (type == DIAGMEM_U32) {
        uint32_t value;
        memcpy(&value, at, sizeof value);
        return value;
    }
    if (type == DIAGMEM_S64) {
        int64_t value;
        memcpy(&value, at, sizeof value);
        return value;
    }
    return *at;
}

/* An index of an axis, its nearest end where it lies outside. `from_end` is added to one below 0. */
static inline int32_t diagmem_index(const unsigned char *at, int32_t type, int32_t size, int32_t from_end) {
    const int64_t given = diagmem_load_int(at, type);
    const int64_t index = given < 0 ? given + from_end : given;
    return (int32_t)(index < 0 ? 0 : index < size ? index : size - 1);
}

/* What does not fit wraps around; every number but 0 is true. */
static inline void diagmem_store_int(unsigned char *at, int32_t type, int64_t x) {
    if (type == DIAGMEM_S16) {
        const uint16_t value = (uint16_t)x;
        memcpy(at, &value, sizeof value);
    } else if (type == DIAGMEM_S32 || type == DIAGMEM_U32) {
        const uint32_t value = (uint32_t)x;
        memcpy(at, &value, sizeof value);
    } else if (type == DIAGMEM_S64) {
        memcpy(at, &x, sizeof x);
    } else {
        *at = (unsigned char)(type == DIAGMEM_BOOL ? x != 0 : x);
    }
}

/* Defines the kernel `name`: `convert` makes each element of type `to` from one of type `from`. Its parameters `p`, of
 * type `params`, have a diagmem_broadcast `shape`. */
#define DIAGMEM_CONVERSION(name, params, convert, from, to)                                               \
    static inline void name##_row(const params *p, const unsigned char *in, unsigned char *out) {         \
        const int32_t last = DIAGMEM_AXES - 1;                                                            \
        const int32_t in_step = p->shape.first[last] * diagmem_element_bytes(from);                       \
        const int32_t out_step = p->shape.out[last] * diagmem_element_bytes(to);                          \
        for (int32_t i = p->shape.size[last]; i > 0; --i, in += in_step, out += out_step) {               \
            convert(p, in, out);                                                                          \
        }                                                                                                 \
    }                                                                                                     \
    static inline void name(const params *p, const void *in, void *out) {                                 \
        diagmem_place at = {{0}, 0, 0, 0};                                                                \
        do {                                                                                              \
            name##_row(p, (const unsigned char *)in + at.first * diagmem_element_bytes(from),             \
                       (unsigned char *)out + at.out * diagmem_element_bytes(to));                        \
        } while (diagmem_next_row(&p->shape, &at));                                                       \
    }

#endif
