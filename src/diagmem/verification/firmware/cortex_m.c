/* The harness on a Cortex-M, or a RISC-V core: where it starts, and the host's files through semihosting. */
#include <stdint.h>
#include <string.h>

#include "harness.h"
#include "model.h"

enum { SYS_OPEN = 0x01, SYS_WRITE = 0x05, SYS_READ = 0x06, SYS_EXIT = 0x18 };
enum { MODE_RB = 1, MODE_WB = 5 };
enum { STOPPED_BY_ERROR = 0x20023, STOPPED_BY_EXIT = 0x20026 };

#define STACK_PAINT 0xC5C5C5C5u

extern uint32_t stack_limit[], stack_top[];
extern uint32_t data_begin[], data_end[], data_source[], bss_begin[], bss_end[];

int main(void);
void reset(void);

/* The first memory is the board's RAM; all others are in its other RAM, one behind the other. */
#ifndef HARNESS_FAST_BYTES
#define HARNESS_FAST_BYTES MODEL_ARENA_BYTES
#endif

__attribute__((section(".arena.bss"), aligned(MODEL_ARENA_ALIGN))) static union {
    unsigned char bytes[HARNESS_FAST_BYTES];
    int64_t alignment;
} arena_memory;

#ifdef HARNESS_SLOW_BYTES
__attribute__((section(".slow.bss"), aligned(MODEL_ARENA_ALIGN))) static union {
    unsigned char bytes[HARNESS_SLOW_BYTES];
    int64_t alignment;
} slow_memory;
#endif

static uintptr_t inputs, outputs, stack;
static uint32_t *painted_to;
static uint32_t stack_bytes;

#if defined(__riscv)
#define STACK_POINTER "mv %0, sp"

static uintptr_t host(uintptr_t call, const void *arguments) {
    register uintptr_t a0 __asm__("a0") = call;
    register const void *a1 __asm__("a1") = arguments;
    __asm__ volatile(
        ".option push\n\t.option norvc\n\tslli x0, x0, 0x1f\n\tebreak\n\tsrai x0, x0, 7\n\t.option pop"
        : "+r"(a0)
        : "r"(a1)
        : "memory");
    return a0;
}
#else
#define STACK_POINTER "mov %0, sp"

static uintptr_t host(uintptr_t call, const void *arguments) {
    register uintptr_t r0 __asm__("r0") = call;
    register const void *r1 __asm__("r1") = arguments;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}
#endif

static void stop(uintptr_t reason) {
    host(SYS_EXIT, (const void *)reason);
    for (;;) {
    }
}

__attribute__((aligned(4), used)) static void fault(void) { stop(STOPPED_BY_ERROR); }

#if defined(__riscv)
__attribute__((section(".vectors"), naked, used)) static void start(void) {
    __asm__ volatile(".option arch, +zicsr\n\tla sp, stack_top\n\tla t0, fault\n\tcsrw mtvec, t0\n\ttail reset");
}
#else
__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))stack_top, reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault,
};
#endif

static uintptr_t open_file(const char *name, uintptr_t mode) {
    const uintptr_t arguments[3] = {(uintptr_t)name, mode, strlen(name)};
    return host(SYS_OPEN, arguments);
}

static void write_file(uintptr_t file, const void *from, size_t bytes) {
    const uintptr_t arguments[3] = {file, (uintptr_t)from, bytes};
    if (host(SYS_WRITE, arguments) != 0) {
        stop(STOPPED_BY_ERROR);
    }
}

void *harness_arena(int pool, size_t bytes) {
#ifdef HARNESS_SLOW_BYTES
    static size_t used;
    if (pool > 0) {
        void *const begin = slow_memory.bytes + used;
        used += (bytes + MODEL_ARENA_ALIGN - 1) / MODEL_ARENA_ALIGN * MODEL_ARENA_ALIGN;
        return begin;
    }
#endif
    (void)pool;
    (void)bytes;
    return &arena_memory;
}

int harness_read(void *to, size_t bytes) {
    const uintptr_t arguments[3] = {inputs, (uintptr_t)to, bytes};
    return host(SYS_READ, arguments) == 0;
}

void harness_write(const void *from, size_t bytes) { write_file(outputs, from, bytes); }

/* Paints what lies below this function's own frame, which the next call will use. Volatile, for otherwise the compiler
 * may call memset, which would paint over its own frame. */
__attribute__((optimize("no-shrink-wrap"))) HARNESS_NOINLINE void harness_paint_stack(void) {
    uint32_t *end;
    __asm__ volatile(STACK_POINTER : "=r"(end));
    for (volatile uint32_t *at = stack_limit; at < end; ++at) {
        *at = STACK_PAINT;
    }
    painted_to = end;
}

HARNESS_NOINLINE void harness_measure_stack(void) {
    uint32_t *at = stack_limit;
    while (at < painted_to && *at == STACK_PAINT) {
        ++at;
    }
    const uint32_t used = (uint32_t)((painted_to - at) * 4);
    stack_bytes = used > stack_bytes ? used : stack_bytes;
}

void reset(void) {
#if !defined(__riscv)
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* the floating-point unit, where there is one */
#endif
#ifdef TRAPS_MISALIGNED
    *(volatile uint32_t *)0xE000ED14 |= 1u << 3;
#endif
    memcpy(data_begin, data_source, (size_t)((char *)data_end - (char *)data_begin));
    memset(bss_begin, 0, (size_t)((char *)bss_end - (char *)bss_begin));
    inputs = open_file("inputs.bin", MODE_RB);
    outputs = open_file("outputs.bin", MODE_WB);
    stack = open_file("stack.bin", MODE_WB);
#ifdef HARNESS_CORES
    harness_paint_other_stack();
#endif
    const int status = main();
    write_file(stack, &stack_bytes, sizeof stack_bytes);
#ifdef HARNESS_CORES
    const uint32_t other_bytes = harness_other_stack();
    write_file(stack, &other_bytes, sizeof other_bytes);
#endif
    stop(status == 0 ? STOPPED_BY_EXIT : STOPPED_BY_ERROR);
}
