/* tiny: made by diagmem VERSION; do not edit.
 * model: tiny, sha256 0000000000000000000000000000000000000000000000000000000000000000
 * kernels: diagmem; arena: 206 bytes (lower bound 198) */
#include "tiny.h"

#include <string.h>

const tiny_tensor tiny_inputs[TINY_INPUTS] = {
    {"input", TINY_INT8,
     TINY_INPUT_0_RANK, TINY_INPUT_0_SHAPE, TINY_INPUT_0_ELEMS, TINY_INPUT_0_BYTES,
     TINY_INPUT_0_SCALE, TINY_INPUT_0_ZERO_POINT},
};

const tiny_tensor tiny_outputs[TINY_OUTPUTS] = {
    {"softmax_8", TINY_INT8,
     TINY_OUTPUT_0_RANK, TINY_OUTPUT_0_SHAPE, TINY_OUTPUT_0_ELEMS, TINY_OUTPUT_0_BYTES,
     TINY_OUTPUT_0_SCALE, TINY_OUTPUT_0_ZERO_POINT},
};

/* The stored value from `low` to `high` that is nearest; what is not a number becomes `low`. */
static int32_t nearest(const tiny_tensor *tensor, float value, int32_t low, int32_t high) {
    const float least = (float)(low - tensor->zero_point), largest = (float)(high - tensor->zero_point);
    float steps = value / tensor->scale;
    steps = !(steps > least) ? least : steps > largest ? largest : steps;
    int32_t whole = (int32_t)steps; /* towards zero */
    const float rest = steps - (float)whole;
    whole += rest >= 0.5f ? 1 : rest <= -0.5f ? -1 : 0;
    return whole + tensor->zero_point;
}

static int put(const tiny_tensor *tensor, void *to, int32_t count, const float *values) {
    if (tensor->type != TINY_FLOAT32 && tensor->scale == 0.0f) {
        return 0;
    }
    switch (tensor->type) {
    case TINY_FLOAT32:
        memcpy(to, values, (size_t)count * sizeof(float));
        return 1;
    case TINY_INT8:
        for (int32_t i = 0; i < count; ++i) {
            ((int8_t *)to)[i] = (int8_t)nearest(tensor, values[i], INT8_MIN, INT8_MAX);
        }
        return 1;
    default:
        return 0;
    }
}

static int get(const tiny_tensor *tensor, const void *from, int32_t count, float *values) {
    if (tensor->type != TINY_FLOAT32 && tensor->scale == 0.0f) {
        return 0;
    }
    switch (tensor->type) {
    case TINY_FLOAT32:
        memcpy(values, from, (size_t)count * sizeof(float));
        return 1;
    case TINY_INT8:
        for (int32_t i = 0; i < count; ++i) {
            values[i] = tensor->scale * (float)(((const int8_t *)from)[i] - tensor->zero_point);
        }
        return 1;
    default:
        return 0;
    }
}

int tiny_quantize_input_in(void *arena, int index, const float *values) {
    void *const place = tiny_input_in(arena, index);
    return place == NULL ? 0 : put(&tiny_inputs[index], place, tiny_inputs[index].elems, values);
}

int tiny_dequantize_output_in(const void *arena, int index, float *values) {
    const void *const place = tiny_output_in(arena, index);
    return place == NULL ? 0 : get(&tiny_outputs[index], place, tiny_outputs[index].elems, values);
}

#ifndef TINY_NO_STATIC_ARENA
int tiny_quantize_input(int index, const float *values) {
    void *const place = tiny_input(index);
    return place == NULL ? 0 : put(&tiny_inputs[index], place, tiny_inputs[index].elems, values);
}

int tiny_dequantize_output(int index, float *values) {
    const void *const place = tiny_output(index);
    return place == NULL ? 0 : get(&tiny_outputs[index], place, tiny_outputs[index].elems, values);
}
#endif
