/* The second core of Arm's MPS2 board AN521, which waits until the first one tells where it starts. It runs the model
 * again and again, or takes one row after the other, and waits at the first barrier until the first core calls. */
#include <stdint.h>

#include "harness.h"
#include "harness_team.h"

#define INIT_VECTORS_OF_CORE_1 (*(volatile uint32_t *)0x50021114) /* INITSVTOR1, in the SSE-200's system control */
#define WAITING_CORES (*(volatile uint32_t *)0x50021118)          /* CPUWAIT */
#define FLOATING_POINT_ACCESS (*(volatile uint32_t *)0xE000ED88)

enum { STACK_WORDS = 8192 };

#define STACK_PAINT 0xC5C5C5C5u

static model_team team;
static void *volatile arena;
HARNESS_OUTSIDE static volatile uint32_t stack[STACK_WORDS];

static void run_second(void) {
    FLOATING_POINT_ACCESS |= 0xFu << 20;
    for (;;) {
        harness_run_on(arena, &team, 1, 2, 0);
    }
}

static void fault(void) {
    for (;;) {
    }
}

__attribute__((aligned(256), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))(stack + STACK_WORDS), run_second, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0,
    fault, fault,
};

int harness_together(void *given, const void *row) {
    if (arena == 0) {
        arena = given;
        INIT_VECTORS_OF_CORE_1 = (uint32_t)vectors;
        __asm__ volatile("dsb" ::: "memory");
        WAITING_CORES = 0;
    }
    return harness_run_on(given, &team, 0, 2, row);
}

void harness_paint_other_stack(void) {
    for (int at = 0; at < STACK_WORDS; ++at) {
        stack[at] = STACK_PAINT;
    }
}

uint32_t harness_other_stack(void) {
    uint32_t at = 0;
    while (at < STACK_WORDS && stack[at] == STACK_PAINT) {
        ++at;
    }
    return (STACK_WORDS - at) * 4;
}
