/* A plugin for QEMU: counts the instructions between a function `begin` and a function `end`, and prints the count each
 * time `end` is reached. Arguments: begin=ADDRESS,end=ADDRESS.
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

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned int, void *), int, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);

__attribute__((visibility("default"))) int qemu_plugin_version = PLUGIN_VERSION;

static uint64_t begin_at, end_at, total, at_begin;

static void count(unsigned int cpu, void *instructions) {
    (void)cpu;
    total += (uintptr_t)instructions;
}

static void begin(unsigned int cpu, void *instructions) {
    count(cpu, instructions);
    at_begin = total;
}

static void end(unsigned int cpu, void *instructions) {
    fprintf(stderr, "instructions %llu\n", (unsigned long long)(total - at_begin));
    count(cpu, instructions);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    const uint64_t at = qemu_plugin_tb_vaddr(block);
    const uintptr_t instructions = qemu_plugin_tb_n_insns(block);
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_cb(block, at == begin_at ? begin : at == end_at ? end : count, 0,
                                         (void *)instructions);
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
        }
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
