/* A plugin for QEMU: counts the instructions between a function `begin` and a function `end`, and prints the count each
 * time `end` is reached. With a file `marks` of addresses, four bytes each, also each time that one of these is
 * reached, and with it the bytes that were read from the arena and written to it up to there. Arguments:
 * begin=ADDRESS,end=ADDRESS[,marks=PATH,arena=ADDRESS,bytes=COUNT].
 *
 * Of two cores, with `wait` the address and `waits` the bytes of the function in which they wait for each other: the
 * sum over all stretches between two barriers of what the core executed that had more to do, and how many barriers
 * there were. Instructions of that function are not counted.
 *
 * QEMU's packages come without its header, so the few functions used are declared here. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef PLUGIN_VERSION
#define PLUGIN_VERSION 1
#endif

typedef uint64_t qemu_plugin_id_t;
typedef struct qemu_info qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned int, void *), int, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned int, void *), int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, void (*)(unsigned int, uint32_t, uint64_t, void *),
                                      int, int, void *);
unsigned int qemu_plugin_mem_size_shift(uint32_t);
_Bool qemu_plugin_mem_is_store(uint32_t);

enum { READS_AND_WRITES = 3 };

__attribute__((visibility("default"))) int qemu_plugin_version = PLUGIN_VERSION;

enum { MOST_MARKS = 65536 };

static uint64_t begin_at, end_at, total, at_begin, arena_at, arena_bytes, read_bytes, written_bytes;
static uint32_t marks[MOST_MARKS];
static size_t mark_count;

enum { CORES = 2, MOST_BARRIERS = 1 << 20 };

static uint64_t wait_at, wait_bytes, work[CORES];
static uint32_t between[CORES][MOST_BARRIERS];
static size_t arrivals[CORES], first_arrival;

static void count_work(unsigned int cpu, void *instructions) { work[cpu % CORES] += (uintptr_t)instructions; }

static void arrive(unsigned int cpu, void *unused) {
    const unsigned int core = cpu % CORES;
    (void)unused;
    between[core][arrivals[core]++ % MOST_BARRIERS] = (uint32_t)work[core];
    work[core] = 0;
}

static void begin_together(unsigned int cpu, void *instructions) {
    first_arrival = arrivals[cpu % CORES];
    work[cpu % CORES] = (uintptr_t)instructions;
}

static void end_together(unsigned int cpu, void *unused) {
    const size_t last = arrivals[cpu % CORES];
    uint64_t critical = work[cpu % CORES];
    (void)unused;
    for (size_t i = first_arrival; i < last; ++i) {
        const uint32_t one = between[0][i % MOST_BARRIERS], other = between[1][i % MOST_BARRIERS];
        critical += one > other ? one : other;
    }
    fprintf(stderr, "critical %llu %zu\n", (unsigned long long)critical, last - first_arrival);
}

static void count(unsigned int cpu, void *instructions) {
    (void)cpu;
    total += (uintptr_t)instructions;
}

static void begin(unsigned int cpu, void *instructions) {
    count(cpu, instructions);
    at_begin = total;
    read_bytes = written_bytes = 0;
}

static void end(unsigned int cpu, void *instructions) {
    fprintf(stderr, "instructions %llu\n", (unsigned long long)(total - at_begin));
    count(cpu, instructions);
}

/* Whole blocks are counted as they begin: of this one, `left` instructions are still to come. */
static void mark(unsigned int cpu, void *left) {
    (void)cpu;
    fprintf(stderr, "mark %llu %llu %llu\n", (unsigned long long)(total - at_begin - (uintptr_t)left),
            (unsigned long long)read_bytes, (unsigned long long)written_bytes);
}

static void touched(unsigned int cpu, uint32_t info, uint64_t at, void *unused) {
    (void)cpu, (void)unused;
    if (at - arena_at < arena_bytes) {
        *(qemu_plugin_mem_is_store(info) ? &written_bytes : &read_bytes) += 1u << qemu_plugin_mem_size_shift(info);
    }
}

/* Steps that take no instruction end where the step before them ends: an address may be marked more than once. */
static size_t marks_at(uint64_t at) {
    size_t found = 0;
    for (size_t i = 0; i < mark_count; ++i) {
        found += (marks[i] & ~1u) == at;
    }
    return found;
}

static void translated_together(struct qemu_plugin_tb *block, uint64_t at, uintptr_t instructions) {
    if (at - wait_at >= wait_bytes) {
        qemu_plugin_register_vcpu_tb_exec_cb(
            block, at == begin_at ? begin_together : at == end_at ? end_together : count_work, 0, (void *)instructions);
    } else if (at == wait_at) {
        qemu_plugin_register_vcpu_tb_exec_cb(block, arrive, 0, NULL);
    }
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    const uint64_t at = qemu_plugin_tb_vaddr(block);
    const uintptr_t instructions = qemu_plugin_tb_n_insns(block);
    (void)id;
    if (wait_bytes > 0) {
        translated_together(block, at, instructions);
        return;
    }
    qemu_plugin_register_vcpu_tb_exec_cb(block, at == begin_at ? begin : at == end_at ? end : count, 0,
                                         (void *)instructions);
    for (uintptr_t i = 0; mark_count > 0 && i < instructions; ++i) {
        struct qemu_plugin_insn *const instruction = qemu_plugin_tb_get_insn(block, i);
        qemu_plugin_register_vcpu_mem_cb(instruction, touched, 0, READS_AND_WRITES, NULL);
        for (size_t left = marks_at(qemu_plugin_insn_vaddr(instruction)); left > 0; --left) {
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, mark, 0, (void *)(instructions - i));
        }
    }
}

static void read_marks(const char *path) {
    FILE *const file = fopen(path, "rb");
    if (file != NULL) {
        mark_count = fread(marks, sizeof *marks, MOST_MARKS, file);
        fclose(file);
    }
}

static uint64_t address(const char *text) { return strtoull(text, NULL, 0) & ~1ull; }

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
                                                               char **argv) {
    (void)info;
    for (int i = 0; i < argc; ++i) {
        if (strncmp(argv[i], "begin=", 6) == 0) {
            begin_at = address(argv[i] + 6);
        } else if (strncmp(argv[i], "end=", 4) == 0) {
            end_at = address(argv[i] + 4);
        } else if (strncmp(argv[i], "wait=", 5) == 0) {
            wait_at = address(argv[i] + 5);
        } else if (strncmp(argv[i], "waits=", 6) == 0) {
            wait_bytes = strtoull(argv[i] + 6, NULL, 0);
        } else if (strncmp(argv[i], "marks=", 6) == 0) {
            read_marks(argv[i] + 6);
        } else if (strncmp(argv[i], "arena=", 6) == 0) {
            arena_at = address(argv[i] + 6);
        } else if (strncmp(argv[i], "bytes=", 6) == 0) {
            arena_bytes = strtoull(argv[i] + 6, NULL, 0);
        }
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
