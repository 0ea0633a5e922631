/* tiny: made by diagmem VERSION; do not edit.
 * model: tiny, sha256 0000000000000000000000000000000000000000000000000000000000000000
 * kernels: diagmem; arena: 256 bytes (lower bound 256) */
#ifndef TINY_H
#define TINY_H

#include <stddef.h>
#include <stdint.h>

/* Where things lie: define these as your compiler's attributes, such as __attribute__((section(".ccm"))), in a header
 * whose name is given as TINY_CONFIG, with its quotes. */
#ifdef TINY_CONFIG
#include TINY_CONFIG
#endif
#ifndef TINY_WEIGHTS_ATTR
#define TINY_WEIGHTS_ATTR /* each table of weights */
#endif
#ifndef TINY_ARENA_ATTR
#define TINY_ARENA_ATTR /* the model's own arena */
#endif
#ifndef TINY_CODE_ATTR
#define TINY_CODE_ATTR /* each function that computes */
#endif

#define TINY_ARENA_BYTES 256
#define TINY_ARENA_ALIGN 1 /* an arena starts on a multiple of so many bytes */

#define TINY_INPUTS 1
/* 'input': 1x8x8x3 */
#define TINY_INPUT_0_TYPE int8_t
#define TINY_INPUT_0_RANK 4
#define TINY_INPUT_0_SHAPE {1, 8, 8, 3}
#define TINY_INPUT_0_ELEMS 192
#define TINY_INPUT_0_BYTES 192
#define TINY_INPUT_0_SCALE 0.007843256f
#define TINY_INPUT_0_ZERO_POINT (-1)

#define TINY_OUTPUTS 1
/* 'softmax_8': 1x5 */
#define TINY_OUTPUT_0_TYPE int8_t
#define TINY_OUTPUT_0_RANK 2
#define TINY_OUTPUT_0_SHAPE {1, 5}
#define TINY_OUTPUT_0_ELEMS 5
#define TINY_OUTPUT_0_BYTES 5
#define TINY_OUTPUT_0_SCALE 0.00390625f
#define TINY_OUTPUT_0_ZERO_POINT (-128)

/* What a tensor is: a stored value q means scale * (q - zero_point). The scale is 0 where there is none. */
enum { TINY_FLOAT32, TINY_INT8, TINY_UINT8, TINY_INT16, TINY_INT32, TINY_INT64, TINY_UINT32, TINY_UINT64, TINY_BOOL };
typedef struct {
    const char *name;
    int32_t type, rank, shape[4], elems, bytes;
    float scale;
    int32_t zero_point;
} tiny_tensor;

#ifdef __cplusplus
extern "C" {
#endif

/* With the model's own arena. An index that does not exist gives NULL. Write the inputs before each run, for it may
 * overwrite them. */
#ifndef TINY_NO_STATIC_ARENA
void *tiny_input(int index);
const void *tiny_output(int index);
void tiny_invoke(void);
#endif

/* The same with arenas of your own, each of TINY_ARENA_BYTES that start on a multiple of TINY_ARENA_ALIGN: any
 * number at once, from any thread. */
void *tiny_input_in(void *arena, int index);
const void *tiny_output_in(const void *arena, int index);
void tiny_invoke_in(void *arena);

/* The first place in memory of yours where an arena may start; NULL if the memory is too small for it. */
void *tiny_arena(void *memory, size_t memory_bytes);

/* Real numbers in and out: as the scale says, to the nearest stored value, halves away from zero, within the type's
 * range. They return 0 if there is no such tensor, or none that stands for real numbers; else 1. These, and the
 * constants, are in tiny_values.c. */
extern const tiny_tensor tiny_inputs[TINY_INPUTS];
extern const tiny_tensor tiny_outputs[TINY_OUTPUTS];
int tiny_quantize_input_in(void *arena, int index, const float *values);
int tiny_dequantize_output_in(const void *arena, int index, float *values);
#ifndef TINY_NO_STATIC_ARENA
int tiny_quantize_input(int index, const float *values);
int tiny_dequantize_output(int index, float *values);
#endif

/* The addresses with their types. */
static inline int8_t *tiny_input_0_in(void *arena) { return (int8_t *)tiny_input_in(arena, 0); }
static inline const int8_t *tiny_output_0_in(const void *arena) { return (const int8_t *)tiny_output_in(arena, 0); }
#ifndef TINY_NO_STATIC_ARENA
static inline int8_t *tiny_input_0(void) { return (int8_t *)tiny_input(0); }
static inline const int8_t *tiny_output_0(void) { return (const int8_t *)tiny_output(0); }
#endif

#ifdef __cplusplus
}
#endif

#endif
