/* tiny: made by diagmem VERSION; do not edit.
 * model: tiny, sha256 0000000000000000000000000000000000000000000000000000000000000000
 * kernels: diagmem; arena: 256 bytes (lower bound 256) */
#ifndef TINY_H
#define TINY_H

#include <stdint.h>

#define TINY_ARENA_BYTES 256
#define TINY_ARENA_ALIGN 1 /* the arena starts on a multiple of so many bytes */

#define TINY_INPUTS 1
/* 'input': 1x8x8x3 */
#define TINY_INPUT_0_TYPE int8_t
#define TINY_INPUT_0_ELEMS 192
#define TINY_INPUT_0_BYTES 192
#define TINY_INPUT_0_SCALE 0.007843256f
#define TINY_INPUT_0_ZERO_POINT (-1)

#define TINY_OUTPUTS 1
/* 'softmax_8': 1x5 */
#define TINY_OUTPUT_0_TYPE int8_t
#define TINY_OUTPUT_0_ELEMS 5
#define TINY_OUTPUT_0_BYTES 5
#define TINY_OUTPUT_0_SCALE 0.00390625f
#define TINY_OUTPUT_0_ZERO_POINT (-128)

#ifdef __cplusplus
extern "C" {
#endif

/* With the model's own arena. An index that does not exist gives NULL. Write the inputs before each run, for it may
 * overwrite them. */
#ifndef TINY_NO_STATIC_ARENA
void *tiny_input(int index);
void *tiny_output(int index);
void tiny_invoke(void);
#endif

/* The same with arenas of your own, each of TINY_ARENA_BYTES: any number at once, from any thread. */
void *tiny_input_in(void *arena, int index);
void *tiny_output_in(void *arena, int index);
void tiny_invoke_in(void *arena);

#ifdef __cplusplus
}
#endif

#endif
