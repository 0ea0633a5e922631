/* tiny: made by diagmem VERSION; do not edit.
 * model: tiny, sha256 0000000000000000000000000000000000000000000000000000000000000000
 * kernels: diagmem; arena: 206 bytes (lower bound 198) */
#include "tiny.h"

#include <stddef.h>

#include "tiny_kernels.h"
#include "tiny_weights.h"

/* Called after each operation with its index in the model's file: to feed a watchdog, to measure, to look on. */
#ifndef TINY_AFTER_OP
#define TINY_AFTER_OP(op) ((void)0)
#endif

/* In debug builds, those with TINY_DEBUG, what the caller has to see to is checked. */
#ifndef TINY_DEBUG
#define CHECK(condition) ((void)0)
#elif defined(TINY_ASSERT)
#define CHECK(condition) TINY_ASSERT(condition)
#else
#include <assert.h>
#define CHECK(condition) assert(condition)
#endif
#define CHECK_ARENA() CHECK(arena != NULL && (uintptr_t)arena % TINY_ARENA_ALIGN == 0)

#define AT(offset) ((void *)((unsigned char *)arena + (offset)))

/* 'input': 1x8x8x3, one behind the other */
static const diagmem_rows rows0 = {
    .height = 8, .base = 14, .period = 8, .pitch = 24,
};

/* 'conv_2d_0': 1x4x4x8, anywhere */
static const DIAGMEM_OFFSET rows1_table[4] = {
    8, 40, 104, 136,
};
static const diagmem_rows rows1 = {
    .height = 4, .table = rows1_table,
};

/* 'depthwise_conv_2d_1': 1x4x4x8, anywhere */
static const DIAGMEM_OFFSET rows2_table[4] = {
    72, 0, 0, 0,
};
static const diagmem_rows rows2 = {
    .height = 4, .table = rows2_table,
};

/* 'conv_2d_2': 1x4x4x8, anywhere */
static const DIAGMEM_OFFSET rows3_table[4] = {
    72, 0, 0, 0,
};
static const diagmem_rows rows3 = {
    .height = 4, .table = rows3_table,
};

/* 'add_3': 1x4x4x8, anywhere */
static const DIAGMEM_OFFSET rows4_table[4] = {
    72, 0, 32, 0,
};
static const diagmem_rows rows4 = {
    .height = 4, .table = rows4_table,
};

/* 'max_pool_2d_4': 1x2x2x8, in a ring */
static const diagmem_rows rows5 = {
    .height = 2, .base = 136, .period = 1, .pitch = 0,
};

/* 'average_pool_2d_5': 1x1x1x8, one behind the other */
static const diagmem_rows rows6 = {
    .height = 1, .base = 0, .period = 1, .pitch = 0,
};

/* op 0 'conv_2d_0' (CONV_2D): 1x8x8x3 -> 1x4x4x8 */
static const diagmem_conv_2d_s8_params op0 = {
    .groups = 1,
    .window = {
        .batches = 1, .in_height = 8, .in_width = 8, .in_depth = 3, .in_image = 192, .in_row = 24, .in_pitch = 3,
        .out_height = 4, .out_width = 4, .out_depth = 8, .out_image = 128, .out_row = 32, .out_pitch = 8,
        .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .dilation_h = 1, .dilation_w = 1, .pad_top = 0,
        .pad_left = 0,
    },
    .padding = tiny_op0_padding, .filter = tiny_op0_filter,
    .output = {
        .bias = tiny_op0_bias, .mantissa = tiny_op0_mantissa, .shift = tiny_op0_shift, .zero_point = -128,
        .low = -128, .high = 127, .rounding = DIAGMEM_ROUNDED_TWICE_DOWN,
    },
};

/* op 1 'depthwise_conv_2d_1' (DEPTHWISE_CONV_2D): 1x4x4x8 -> 1x4x4x8 */
static const diagmem_depthwise_conv_2d_s8_params op1 = {
    .multiplier = 1,
    .window = {
        .batches = 1, .in_height = 4, .in_width = 4, .in_depth = 8, .in_image = 128, .in_row = 32, .in_pitch = 8,
        .out_height = 4, .out_width = 4, .out_depth = 8, .out_image = 128, .out_row = 32, .out_pitch = 8,
        .kernel_h = 3, .kernel_w = 3, .stride_h = 1, .stride_w = 1, .dilation_h = 1, .dilation_w = 1, .pad_top = 1,
        .pad_left = 1,
    },
    .padding = tiny_op1_padding, .filter = tiny_op1_filter,
    .output = {
        .bias = tiny_op1_bias, .mantissa = tiny_op1_mantissa, .shift = tiny_op1_shift, .zero_point = -4,
        .low = -128, .high = 127, .rounding = DIAGMEM_ROUNDED_TWICE_DOWN,
    },
};

/* op 2 'conv_2d_2' (CONV_2D): 1x4x4x8 -> 1x4x4x8 */
static const diagmem_conv_2d_s8_params op2 = {
    .groups = 1,
    .window = {
        .batches = 1, .in_height = 4, .in_width = 4, .in_depth = 8, .in_image = 128, .in_row = 32, .in_pitch = 8,
        .out_height = 4, .out_width = 4, .out_depth = 8, .out_image = 128, .out_row = 32, .out_pitch = 8,
        .kernel_h = 1, .kernel_w = 1, .stride_h = 1, .stride_w = 1, .dilation_h = 1, .dilation_w = 1, .pad_top = 0,
        .pad_left = 0,
    },
    .padding = NULL, .filter = tiny_op2_filter,
    .output = {
        .bias = tiny_op2_bias, .mantissa = tiny_op2_mantissa, .shift = tiny_op2_shift, .zero_point = -8,
        .low = -128, .high = 127, .rounding = DIAGMEM_ROUNDED_TWICE_DOWN,
    },
};

/* op 3 'add_3' (ADD): 1x4x4x8, 1x4x4x8 -> 1x4x4x8 */
static const diagmem_sum_params op3 = {
    .shape = {
        .size = {1, 1, 1, 32}, .first = {0, 0, 0, 1}, .second = {0, 0, 0, 1}, .out = {0, 0, 0, 1},
    },
    .left_shift = 20,
    .first = {
        .zero_point = -128, .mantissa = 1159708535, .shift = -1,
    },
    .second = {
        .zero_point = -8, .mantissa = 1073741824, .shift = 0,
    },
    .output = {
        .mantissa = 1874171191, .shift = -19, .zero_point = -23, .low = -128, .high = 127,
    },
};

/* op 4 'max_pool_2d_4' (MAX_POOL_2D): 1x4x4x8 -> 1x2x2x8 */
static const diagmem_max_pool_2d_s8_params op4 = {
    .window = {
        .batches = 1, .in_height = 4, .in_width = 4, .in_depth = 8, .in_image = 128, .in_row = 32, .in_pitch = 8,
        .out_height = 2, .out_width = 2, .out_depth = 8, .out_image = 32, .out_row = 16, .out_pitch = 8,
        .kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2, .dilation_h = 1, .dilation_w = 1, .pad_top = 0,
        .pad_left = 0,
    },
    .low = -128, .high = 127,
};

/* op 5 'average_pool_2d_5' (AVERAGE_POOL_2D): 1x2x2x8 -> 1x1x1x8 */
static const diagmem_average_pool_2d_s8_params op5 = {
    .window = {
        .batches = 1, .in_height = 2, .in_width = 2, .in_depth = 8, .in_image = 32, .in_row = 16, .in_pitch = 8,
        .out_height = 1, .out_width = 1, .out_depth = 8, .out_image = 8, .out_row = 8, .out_pitch = 8,
        .kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2, .dilation_h = 1, .dilation_w = 1, .pad_top = 0,
        .pad_left = 0,
    },
    .low = -128, .high = 127,
};

/* op 7 'fully_connected_7' (FULLY_CONNECTED): 1x8 -> 1x5 */
static const diagmem_fully_connected_s8_params op7 = {
    .rows = 1, .outputs = 5, .inputs = 8, .filter = tiny_op7_filter,
    .output = {
        .bias = tiny_op7_bias, .mantissa = tiny_op7_mantissa, .shift = tiny_op7_shift, .zero_point = 1, .low = -128,
        .high = 127, .rounding = DIAGMEM_ROUNDED_TWICE_DOWN,
    },
};

/* op 8 'softmax_8' (SOFTMAX): 1x5 -> 1x5 */
static const diagmem_softmax_s8_params op8 = {
    .rows = 1, .size = 5, .mantissa = 1562378240, .shift = 23, .least_difference = -248,
};

/* One row of an operation, the next one in its turn; or all of it. */
static TINY_CODE_ATTR void run_step(void *arena, int32_t op, int32_t turn) {
    const void *rows[DIAGMEM_MAX_ROWS];
    (void)turn;
    switch (op) {
    case 0: /* op 0 'conv_2d_0' (CONV_2D): 1x8x8x3 -> 1x4x4x8 */
        diagmem_conv_2d_s8_row(&op0, diagmem_rows_under(&op0.window, &rows0, arena, turn, rows), diagmem_row(&rows1, arena, turn));
        break;
    case 1: /* op 1 'depthwise_conv_2d_1' (DEPTHWISE_CONV_2D): 1x4x4x8 -> 1x4x4x8 */
        diagmem_depthwise_conv_2d_s8_row(&op1, diagmem_rows_under(&op1.window, &rows1, arena, turn, rows), diagmem_row(&rows2, arena, turn));
        break;
    case 2: /* op 2 'conv_2d_2' (CONV_2D): 1x4x4x8 -> 1x4x4x8 */
        diagmem_conv_2d_s8_row(&op2, diagmem_rows_under(&op2.window, &rows2, arena, turn, rows), diagmem_row(&rows3, arena, turn));
        break;
    case 3: /* op 3 'add_3' (ADD): 1x4x4x8, 1x4x4x8 -> 1x4x4x8 */
        diagmem_add_s8(&op3, diagmem_row(&rows1, arena, turn), diagmem_row(&rows3, arena, turn), diagmem_row(&rows4, arena, turn));
        break;
    case 4: /* op 4 'max_pool_2d_4' (MAX_POOL_2D): 1x4x4x8 -> 1x2x2x8 */
        diagmem_max_pool_2d_s8_row(&op4, diagmem_rows_under(&op4.window, &rows4, arena, turn, rows), diagmem_row(&rows5, arena, turn));
        break;
    case 5: /* op 5 'average_pool_2d_5' (AVERAGE_POOL_2D): 1x2x2x8 -> 1x1x1x8 */
        diagmem_average_pool_2d_s8_take(&op5, turn, 2, diagmem_row(&rows5, arena, turn), AT(72), diagmem_row(&rows6, arena, 0));
        break;
    case 6: /* op 6 'reshape_6' (RESHAPE): 1x1x1x8 -> 1x8 */
        /* stays where it is */
        break;
    case 7: /* op 7 'fully_connected_7' (FULLY_CONNECTED): 1x8 -> 1x5 */
        diagmem_fully_connected_s8(&op7, AT(0), AT(0));
        break;
    case 8: /* op 8 'softmax_8' (SOFTMAX): 1x5 -> 1x5 */
        diagmem_softmax_s8(&op8, AT(0), AT(0));
        break;
    default:
        break;
    }
}

enum { OPS = 9, STEPS = 23 };

/* The operation of each step. */
static const uint8_t steps[STEPS] = {
    0, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 1, 2, 3, 4, 5, 6, 7, 8,
};

TINY_CODE_ATTR void tiny_invoke_in(void *arena) {
    CHECK_ARENA();
    uint8_t turns[OPS] = {0};
    for (int32_t i = 0; i < STEPS; ++i) {
        run_step(arena, steps[i], turns[steps[i]]++);
        TINY_AFTER_OP(steps[i]);
    }
}

void *tiny_input_in(void *arena, int index) {
    CHECK_ARENA();
    switch (index) {
    case 0:
        return AT(14);
    default:
        return NULL;
    }
}

const void *tiny_output_in(const void *arena, int index) {
    CHECK_ARENA();
    switch (index) {
    case 0:
        return (const unsigned char *)arena + 0;
    default:
        return NULL;
    }
}

void *tiny_arena(void *memory, size_t memory_bytes) {
    const size_t skipped = (size_t)(-(uintptr_t)memory % TINY_ARENA_ALIGN);
    if (memory == NULL || memory_bytes < skipped || memory_bytes - skipped < TINY_ARENA_BYTES) {
        return NULL;
    }
    return (unsigned char *)memory + skipped;
}

#ifndef TINY_NO_STATIC_ARENA
static TINY_ARENA_ATTR union {
    unsigned char bytes[TINY_ARENA_BYTES];
    int32_t alignment;
} static_arena;

void *tiny_input(int index) {
    return tiny_input_in(&static_arena, index);
}

const void *tiny_output(int index) {
    return tiny_output_in(&static_arena, index);
}

void tiny_invoke(void) {
    tiny_invoke_in(&static_arena);
}
#endif
