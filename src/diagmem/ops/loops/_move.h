/* Elements of any type, moved or filled one after the other: each is read whole, then written. Input and output may
 * overlap; since nothing says `restrict`, a compiler may make wider moves of these loops, or call memmove, only where
 * the bytes that result are those of the loops as written. */
#ifndef DIAGMEM_MOVE_H
#define DIAGMEM_MOVE_H

#include <stdint.h>
#include <string.h>

/* Elements of `size` bytes (1, 2, 4 or 8), `step` bytes apart in the source: 0 repeats one. Returns the end of what it
 * wrote. */
static inline unsigned char *diagmem_move(unsigned char *out, const unsigned char *in, int32_t step, int32_t count,
                                          int32_t size) {
    unsigned char *const end = out + count * size;
    if (size == 1) {
        for (; out != end; ++out, in += step) {
            *out = *in;
        }
    } else if (size == 2) {
        for (; out != end; out += 2, in += step) {
            uint16_t element;
            memcpy(&element, in, sizeof element);
            memcpy(out, &element, sizeof element);
        }
    } else if (size == 4) {
        for (; out != end; out += 4, in += step) {
            uint32_t element;
            memcpy(&element, in, sizeof element);
            memcpy(out, &element, sizeof element);
        }
    } else {
        for (; out != end; out += 8, in += step) {
            uint64_t element;
            memcpy(&element, in, sizeof element);
            memcpy(out, &element, sizeof element);
        }
    }
    return end;
}

#endif
