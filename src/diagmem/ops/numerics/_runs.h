/* The window of a convolution as runs: consecutive inputs that meet consecutive weights. */
#ifndef DIAGMEM_RUNS_H
#define DIAGMEM_RUNS_H

#include "../loops/_window.h"

typedef struct {
    const void *at;
    int32_t count; /* elements */
} diagmem_run;

/* The window at `column`: of each pixel `depth` channels from `channel` on. Taps outside the image are runs of
 * `padding`. `size`: bytes of an element. Returns how many runs there are, at most one for each tap. */
static inline int32_t diagmem_find_runs(const diagmem_window *w, const void *const *rows, int32_t column,
                                        int32_t channel, int32_t depth, const void *padding, size_t size,
                                        diagmem_run *runs) {
    const int is_solid = depth == w->in_pitch && w->dilation_w == 1 && diagmem_columns_inside(w, column);
    int32_t found = 0;
    for (int32_t k = 0; k < w->kernel_h; ++k) {
        const char *const row = rows[k];
        if (is_solid && row != NULL) {
            runs[found].at = row + (size_t)(column * w->in_pitch) * size;
            runs[found++].count = w->kernel_w * depth;
            continue;
        }
        for (int32_t tap = 0; tap < w->kernel_w; ++tap) {
            const int32_t x = column + tap * w->dilation_w;
            const int is_inside = row != NULL && x >= 0 && x < w->in_width;
            runs[found].at = is_inside ? row + (size_t)(x * w->in_pitch + channel) * size : padding;
            runs[found++].count = depth;
        }
    }
    return found;
}

#endif
