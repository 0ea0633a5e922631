/* A plugin for QEMU: counts the instructions between a function `begin` and a function `end`, and prints the count each
 * time `end` is reached. With a file `marks` of addresses, four bytes each, also each time that one of these is
 * reached, and with it the bytes that were read from the arena and written to it up to there. Arguments:
 * begin=ADDRESS,end=ADDRESS[,marks=PATH,arena=ADDRESS,bytes=COUNT][,blocks=PATH[,flash=ADDRESS, …]].
 *
 * With `blocks` it writes how often each block ran, for whoever knows what its instructions take: records of what was
 * done since the mark before, see `struct record`. With `flash=ADDRESS,size=BYTES`, cycles that the core waits on it:
 * `miss` for what no cache has, less what a prefetch has `hidden` of it where code runs on into the next line. Caches
 * for `code` and `data` are LINES:WAYS:BYTES of a line; what is read past both of them (`data=0:1:8`) comes line by
 * line; with `shared`, data is read through the cache for code.
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
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned int, void *), int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, void (*)(unsigned int, uint32_t, uint64_t, void *),
                                      int, int, void *);
unsigned int qemu_plugin_mem_size_shift(uint32_t);
_Bool qemu_plugin_mem_is_store(uint32_t);

enum { READS_AND_WRITES = 3 };

__attribute__((visibility("default"))) int qemu_plugin_version = PLUGIN_VERSION;

enum { MOST_MARKS = 65536 };

static uint64_t begin_at, end_at, total, at_begin, arena_at, read_bytes, written_bytes;
static uint32_t arena_bytes;
static uint32_t marks[MOST_MARKS];
static size_t mark_count;

enum { CORES = 2, MOST_BARRIERS = 1 << 20 };

static uint64_t wait_at, work[CORES];
static uint32_t wait_bytes;
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

/* Instructions that run one after the other. `entered`, `left`: how often by a jump, of the times that it ran; what it
 * waited on flash, for code and for data; accesses that come on top since a word or half a word is misaligned. */
struct block {
    uint32_t at, bytes, instructions;
    uint32_t ran, entered, left, code_wait, data_wait, more_accesses;
    int is_touched;
};

/* What is written of a block; `part`: how many marks were reached before, or those in all where a run ended. */
struct record {
    uint32_t part, at, bytes, ran, entered, left, code_wait, data_wait, more_accesses;
};

enum { MOST_LINES = 1 << 16, MOST_TOUCHED = 1 << 16, NO_LINE = 0xFFFFFFF0 };

struct cache {
    uint32_t lines, ways, line_bytes;
    uint32_t held[MOST_LINES], used[MOST_LINES];
};

static FILE *blocks;
static struct block *touched_blocks[MOST_TOUCHED], *running;
static size_t touched_count;
static uint32_t part, flash_at, flash_bytes, miss_cycles, hidden_cycles, uses, last_line = NO_LINE, last_data = NO_LINE;
static uint32_t last_entered, last_wait;
static struct cache code_cache = {.ways = 1, .line_bytes = 8}, data_cache = {.ways = 1, .line_bytes = 8};
static uint32_t is_shared;

/* Whether a line is there; it is from now on. Of the lines of a set, the one that was used least recently goes. */
static int hits(struct cache *cache, uint32_t line) {
    const uint32_t ways = cache->ways, first = cache->lines ? line % (cache->lines / ways) * ways : 0;
    uint32_t oldest = first;
    ++uses;
    for (uint32_t i = first; cache->lines && i < first + ways; ++i) {
        if (cache->used[i] != 0 && cache->held[i] == line) {
            cache->used[i] = uses;
            return 1;
        }
        oldest = cache->used[i] < cache->used[oldest] ? i : oldest;
    }
    if (cache->lines) {
        cache->held[oldest] = line;
        cache->used[oldest] = uses;
    }
    return 0;
}

static uint32_t fetch_code(const struct block *block) {
    const uint32_t size = code_cache.line_bytes;
    uint32_t waited = 0;
    for (uint32_t line = block->at / size; line <= (block->at + block->bytes - 1) / size; ++line) {
        if (line != last_line && !hits(&code_cache, line)) {
            waited += miss_cycles - (line == last_line + 1 ? hidden_cycles : 0);
        }
        last_line = line;
    }
    return waited;
}

static void fetch_data(uint32_t at, uint32_t bytes) {
    struct cache *const cache = is_shared ? &code_cache : &data_cache;
    const uint32_t size = cache->line_bytes;
    for (uint32_t line = at / size; line <= (at + bytes - 1) / size; ++line) {
        if (!hits(cache, line) && (cache->lines || line != last_data)) {
            running->data_wait += miss_cycles;
        }
        last_data = line;
    }
}

/* Begins to count anew; without a file, what was counted is forgotten. */
static void write_blocks(FILE *file) {
    for (size_t i = 0; i < touched_count; ++i) {
        struct block *const one = touched_blocks[i];
        const struct record record = {part,      one->at,        one->bytes,     one->ran,          one->entered,
                                      one->left, one->code_wait, one->data_wait, one->more_accesses};
        if (file != NULL) {
            fwrite(&record, sizeof record, 1, file);
        }
        one->ran = one->entered = one->left = one->code_wait = one->data_wait = one->more_accesses = 0;
        one->is_touched = 0;
    }
    touched_count = 0;
}

static void add(struct block *block, const struct block *more, uint32_t times) {
    block->ran += times * more->ran;
    block->entered += times * more->entered;
    block->code_wait += times * more->code_wait;
}

static void touch(struct block *block) {
    if (!block->is_touched && touched_count < MOST_TOUCHED) {
        block->is_touched = 1;
        touched_blocks[touched_count++] = block;
    }
}

static void count(unsigned int cpu, void *data) {
    struct block *const block = data;
    (void)cpu;
    total += block->instructions;
    if (blocks == NULL) {
        return;
    }
    touch(block);
    last_entered = running != NULL && running->at + running->bytes != block->at;
    if (last_entered) {
        touch(running);
        ++running->left;
    }
    running = block;
    last_wait = block->at - flash_at < flash_bytes ? fetch_code(block) : 0;
    add(block, &(struct block){.ran = 1, .entered = last_entered, .code_wait = last_wait}, 1);
}

static void begin(unsigned int cpu, void *block) {
    running = NULL;
    write_blocks(NULL);
    count(cpu, block);
    at_begin = total;
    read_bytes = written_bytes = 0;
}

static void end(unsigned int cpu, void *block) {
    fprintf(stderr, "instructions %llu\n", (unsigned long long)(total - at_begin));
    if (blocks != NULL) {
        write_blocks(blocks);
        fflush(blocks);
    }
    ++part;
    count(cpu, block);
}

/* Whole blocks are counted as they begin: of this one, `left` instructions are still to come. */
static void mark(unsigned int cpu, void *left) {
    (void)cpu;
    fprintf(stderr, "mark %llu %llu %llu\n", (unsigned long long)(total - at_begin - (uintptr_t)left),
            (unsigned long long)read_bytes, (unsigned long long)written_bytes);
    if (running != NULL && (uintptr_t)left == running->instructions) {
        const struct block begun = {.ran = 1, .entered = last_entered, .code_wait = last_wait};
        add(running, &begun, -1);
        write_blocks(blocks);
        touch(running);
        add(running, &begun, 1);
    } else if (blocks != NULL) {
        write_blocks(blocks);
    }
    ++part;
}

static void touched(unsigned int cpu, uint32_t info, uint64_t at, void *unused) {
    const uint32_t bytes = 1u << qemu_plugin_mem_size_shift(info);
    (void)cpu, (void)unused;
    if (at - arena_at < arena_bytes) {
        *(qemu_plugin_mem_is_store(info) ? &written_bytes : &read_bytes) += bytes;
    }
    if (running != NULL && at % bytes != 0) {
        touch(running);
        running->more_accesses += at % 2 ? bytes / 2 : bytes / 4;
    }
    if (running != NULL && at - flash_at < flash_bytes && !qemu_plugin_mem_is_store(info)) {
        touch(running);
        fetch_data((uint32_t)at, bytes);
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
    struct qemu_plugin_insn *const last = qemu_plugin_tb_get_insn(block, instructions - 1);
    struct block *const own = calloc(1, sizeof *own);
    if (own == NULL) {
        return;
    }
    own->at = (uint32_t)at;
    own->bytes = (uint32_t)(qemu_plugin_insn_vaddr(last) + qemu_plugin_insn_size(last) - at);
    own->instructions = (uint32_t)instructions;
    qemu_plugin_register_vcpu_tb_exec_cb(block, at == begin_at ? begin : at == end_at ? end : count, 0, own);
    for (uintptr_t i = 0; (mark_count > 0 || blocks != NULL) && i < instructions; ++i) {
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

static void read_cache(struct cache *cache, const char *text) {
    sscanf(text, "%u:%u:%u", &cache->lines, &cache->ways, &cache->line_bytes);
}

/* What stands behind `NAME=`, if the argument is so called. */
static const char *value(const char *argument, const char *name) {
    const size_t length = strlen(name);
    return strncmp(argument, name, length) == 0 && argument[length] == '=' ? argument + length + 1 : NULL;
}

static void read_argument(const char *argument) {
    const struct {
        const char *name;
        uint64_t *address;
        uint32_t *number;
        struct cache *cache;
    } all[] = {
        {"begin", &begin_at, NULL, NULL},       {"end", &end_at, NULL, NULL},
        {"wait", &wait_at, NULL, NULL},         {"waits", NULL, &wait_bytes, NULL},
        {"arena", &arena_at, NULL, NULL},       {"bytes", NULL, &arena_bytes, NULL},
        {"flash", NULL, &flash_at, NULL},       {"size", NULL, &flash_bytes, NULL},
        {"miss", NULL, &miss_cycles, NULL},     {"hidden", NULL, &hidden_cycles, NULL},
        {"shared", NULL, &is_shared, NULL},     {"code", NULL, NULL, &code_cache},
        {"data", NULL, NULL, &data_cache},
    };
    const char *text = value(argument, "marks");
    if (text != NULL) {
        read_marks(text);
    } else if ((text = value(argument, "blocks")) != NULL) {
        blocks = fopen(text, "wb");
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        if ((text = value(argument, all[i].name)) == NULL) {
            continue;
        }
        if (all[i].cache != NULL) {
            read_cache(all[i].cache, text);
        } else if (all[i].number != NULL) {
            *all[i].number = (uint32_t)strtoul(text, NULL, 0);
        } else {
            *all[i].address = address(text);
        }
    }
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
                                                               char **argv) {
    (void)info;
    for (int i = 0; i < argc; ++i) {
        read_argument(argv[i]);
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
