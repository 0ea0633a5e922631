/* A convolution seen from its other end: which inputs reach an output. */
#ifndef DIAGMEM_REACH_H
#define DIAGMEM_REACH_H

#include "_window.h"

/* The inputs along one axis that reach output `o`: from `first` to before `end`. */
typedef struct {
    int32_t first, end;
} diagmem_reach;

static inline diagmem_reach diagmem_reach_of(int32_t o, int32_t pad, int32_t kernel, int32_t stride, int32_t size) {
    const int32_t last = o + pad;
    const int32_t before = last - kernel + 1;
    diagmem_reach found;
    found.first = before > 0 ? (before + stride - 1) / stride : 0;
    found.end = last / stride + 1 < size ? last / stride + 1 : size;
    return found;
}

/* The input rows that reach output row y. */
static inline diagmem_reach diagmem_rows_to(const diagmem_window *w, int32_t y) {
    return diagmem_reach_of(y, w->pad_top, w->kernel_h, w->stride_h, w->in_height);
}

#endif
