/* What the Cortex-M tracer does at each block and memory access, in C for speed. Python fills in the Tracer and hands
 * the two functions to the emulator. cortex_m.py has the same in Python, for machines without a compiler. */
#include <stdint.h>

enum { LOAD, STORE, START, END };
enum { ACCESS_READ = 16 }; /* the emulator's number for a load */

/* The record that tracing/recording.py reads. */
typedef struct {
    uint64_t time;
    uint32_t offset;
    uint16_t bytes;
    uint16_t kind;
} Event;

typedef struct {
    uint64_t begin, end;
    uint64_t offset; /* of its first byte in the traced space */
} Watched;

typedef struct {
    uint64_t begin, end;
    const uint8_t *host; /* where the emulated bytes lie in this process */
} Code;

typedef struct {
    Event *events;
    uint64_t count, capacity;
    void (*full)(void); /* takes the events and sets the count to 0 */
    const Watched *watched;
    uint64_t watched_count;
    const Code *code;
    uint64_t code_count;
    int (*read_register)(void *engine, int number, void *value);
    uint64_t pc_number;
    uint64_t marks_at;        /* a store here starts an operation, one of n to the next word ends operation n */
    uint64_t now;             /* instructions before the current block */
    uint64_t in_block;        /* instructions of the current block */
    uint64_t block;           /* address of the current block */
    const uint8_t *block_host;
} Tracer;

static uint64_t instructions(const uint8_t *at, const uint8_t *end) {
    uint64_t count = 0;
    while (at < end) {
        at += at[1] >= 0xE8 ? 4 : 2; /* Thumb: 0b11101, 0b11110 and 0b11111 begin a long instruction */
        count++;
    }
    return count;
}

void on_block(void *engine, uint64_t address, uint32_t bytes, Tracer *t) {
    uint64_t i;
    (void)engine;
    t->now += t->in_block;
    t->block = address;
    t->in_block = 0;
    t->block_host = 0;
    for (i = 0; i < t->code_count; i++)
        if (address >= t->code[i].begin && address + bytes <= t->code[i].end) {
            t->block_host = t->code[i].host + (address - t->code[i].begin);
            t->in_block = instructions(t->block_host, t->block_host + bytes);
        }
}

static void record(void *engine, Tracer *t, uint64_t offset, uint64_t bytes, int kind) {
    Event *event = &t->events[t->count];
    uint32_t pc = 0;
    t->read_register(engine, (int)t->pc_number, &pc);
    event->time = t->now + (t->block_host ? instructions(t->block_host, t->block_host + (pc - t->block)) : 0);
    event->offset = (uint32_t)offset;
    event->bytes = (uint16_t)bytes;
    event->kind = (uint16_t)kind;
    if (++t->count == t->capacity) t->full();
}

void on_access(void *engine, int access, uint64_t address, int bytes, int64_t value, Tracer *t) {
    uint64_t i, beyond = address + (uint64_t)bytes;
    if (address >= t->marks_at) {
        record(engine, t, (uint64_t)value, 0, address == t->marks_at ? START : END);
        return;
    }
    for (i = 0; i < t->watched_count; i++) {
        const Watched *w = &t->watched[i];
        uint64_t from = address > w->begin ? address : w->begin, to = beyond < w->end ? beyond : w->end;
        if (from < to)
            record(engine, t, w->offset + (from - w->begin), to - from, access == ACCESS_READ ? LOAD : STORE);
    }
}
