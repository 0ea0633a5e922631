/* Runs the model on every input that the host gives, and hands its outputs back. With HARNESS_TRACE also what each
 * operation has written, right after it. */
#include "harness.h"

#include <string.h>

#include "harness_model.h"
#include "model.h"

#define POISON 0xA5

/* An arena in each memory, and what the model's functions are given: the list, or the only one. */
static void *arenas[HARNESS_POOLS];
#ifdef MODEL_POOLS
#define ARENA arenas
#else
#define ARENA arenas[0]
#endif

static unsigned char *place(int pool, size_t offset) { return (unsigned char *)arenas[pool] + offset; }

#ifdef HARNESS_TRACE
static int step, span;

void harness_after_op(int op) {
    (void)op;
    for (; span < HARNESS_SPANS && harness_spans[span].step == step; ++span) {
        harness_write(place(harness_spans[span].pool, harness_spans[span].offset), harness_spans[span].bytes);
    }
    ++step;
}

static void restart_trace(void) { step = span = 0; }
#else
static void restart_trace(void) {}
#endif

/* Places of their own for the instructions before and after a run, by which a counter finds them. */
HARNESS_NOINLINE void harness_begin(void) { __asm__ volatile(""); }
HARNESS_NOINLINE void harness_end(void) { __asm__ volatile(""); }

#ifdef MODEL_INPUT_0_ROWS
HARNESS_OUTSIDE static unsigned char image[MODEL_INPUT_0_BYTES];

static int read_inputs(void) {
    model_start_in(ARENA);
    return harness_read(image, sizeof image);
}

static int push_row(const void *row) {
#ifdef HARNESS_CORES
    return harness_together(ARENA, row);
#else
    return model_push_row_in(ARENA, row);
#endif
}

/* Returns 1 if the run is complete with the last row, and not before. */
static int run_model(void) {
    for (int row = 0; row < MODEL_INPUT_0_ROWS; ++row) {
        if (push_row(image + row * MODEL_INPUT_0_ROW_BYTES) != (row == MODEL_INPUT_0_ROWS - 1)) {
            return 0;
        }
    }
    return 1;
}
#else
static int read_inputs(void) {
    for (int i = 0; i < MODEL_INPUTS; ++i) {
        if (!harness_read(model_input_in(ARENA, i), harness_input_bytes[i])) {
            return 0;
        }
    }
    return 1;
}

static int run_model(void) {
#ifdef HARNESS_CORES
    return harness_together(ARENA, NULL);
#else
    model_invoke_in(ARENA);
    return 1;
#endif
}
#endif

#ifdef HARNESS_STATES
static int is_state(int pool, size_t at) {
    for (int i = 0; i < HARNESS_STATES; ++i) {
        if (pool == harness_states[i].pool && at >= harness_states[i].offset &&
            at - harness_states[i].offset < harness_states[i].bytes) {
            return 1;
        }
    }
    return 0;
}

/* Only the state is there from the run before. */
static void prepare(int run) {
    for (int pool = 0; pool < HARNESS_POOLS; ++pool) {
        for (size_t at = 0; at < harness_pool_bytes[pool]; ++at) {
            if (HARNESS_IS_RESET(run) || !is_state(pool, at)) {
                *place(pool, at) = POISON;
            }
        }
    }
    if (HARNESS_IS_RESET(run)) {
        model_reset_in(ARENA);
    }
}
#else
static void prepare(int run) {
    (void)run;
    for (int pool = 0; pool < HARNESS_POOLS; ++pool) {
        memset(arenas[pool], POISON, harness_pool_bytes[pool]);
    }
}
#endif

int main(void) {
    for (int pool = 0; pool < HARNESS_POOLS; ++pool) {
        arenas[pool] = harness_arena(pool, harness_pool_bytes[pool]);
    }
    for (int run = 0; run < HARNESS_RUNS; ++run) {
        prepare(run);
        restart_trace();
        if (!read_inputs()) {
            return 1;
        }
        harness_paint_stack();
        harness_begin();
        const int is_complete = run_model();
        harness_end();
        harness_measure_stack();
        if (!is_complete) {
            return 1;
        }
        for (int i = 0; i < MODEL_OUTPUTS; ++i) {
            harness_write(model_output_in(ARENA, i), harness_output_bytes[i]);
        }
    }
    return 0;
}
