/* Runs models that share arenas, in whatever order the host asks for: the number of a model, whether its state is set
 * to its first value, and its inputs. Handed back are its outputs, and after them those of all that are to be kept. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sanitizer/asan_interface.h>

/* `shared`: for each memory of the model the number of the one that all share, or -1. */
struct model {
    int pools;
    const int *shared;
    const size_t *pool_bytes;
    int inputs, outputs;
    const size_t *input_bytes, *output_bytes;
    void (*reset)(void *const *);
    void *(*input)(void *const *, int);
    void (*invoke)(void *const *);
    void (*start)(void *const *);
    int (*push_row)(void *const *, const void *);
    int rows;
    size_t row_bytes;
    const void *(*output)(void *const *, int);
};

#include "by_turns_models.h"

#define POISON 0xA5

static void *shared[SHARED_POOLS];
static void *arenas[MODELS][MOST_POOLS];
static int has_run[MODELS];

static void *memory(size_t bytes) {
    void *found;
    if (posix_memalign(&found, SHARED_ALIGN, bytes) != 0) {
        exit(1);
    }
    memset(found, POISON, bytes);
    return found;
}

static void get(void *to, size_t bytes) {
    if (fread(to, 1, bytes, stdin) != bytes) {
        exit(1);
    }
}

static void hand_back(int number) {
    for (int i = 0; i < models[number].outputs; ++i) {
        const void *from = models[number].output(arenas[number], i);
        if (fwrite(from, 1, models[number].output_bytes[i], stdout) != models[number].output_bytes[i]) {
            exit(1);
        }
    }
}

/* Of the arenas that all share there is as much as this model has asked for, and nothing in it. */
static void prepare(const struct model *model) {
    for (int pool = 0; pool < SHARED_POOLS; ++pool) {
        __asan_unpoison_memory_region(shared[pool], shared_bytes[pool]);
        memset(shared[pool], POISON, shared_bytes[pool]);
        __asan_poison_memory_region(shared[pool], shared_bytes[pool]);
    }
    for (int pool = 0; pool < model->pools; ++pool) {
        if (model->shared[pool] >= 0) {
            __asan_unpoison_memory_region(shared[model->shared[pool]], model->pool_bytes[pool]);
        }
    }
}

static void run(int number) {
    const struct model *model = &models[number];
    if (model->push_row == NULL) {
        for (int i = 0; i < model->inputs; ++i) {
            get(model->input(arenas[number], i), model->input_bytes[i]);
        }
        model->invoke(arenas[number]);
        return;
    }
    unsigned char *row = malloc(model->row_bytes);
    model->start(arenas[number]);
    for (int y = 0; y < model->rows; ++y) {
        get(row, model->row_bytes);
        if (model->push_row(arenas[number], row) != (y == model->rows - 1)) {
            exit(1);
        }
    }
    free(row);
}

int main(void) {
    for (int pool = 0; pool < SHARED_POOLS; ++pool) {
        shared[pool] = memory(shared_bytes[pool]);
    }
    for (int number = 0; number < MODELS; ++number) {
        for (int pool = 0; pool < models[number].pools; ++pool) {
            const int at = models[number].shared[pool];
            arenas[number][pool] = at >= 0 ? shared[at] : memory(models[number].pool_bytes[pool]);
        }
    }
    for (int turn = 0; turn < TURNS; ++turn) {
        unsigned char asked[2];
        get(asked, sizeof asked);
        prepare(&models[asked[0]]);
        if (asked[1]) {
            models[asked[0]].reset(arenas[asked[0]]);
        }
        run(asked[0]);
        has_run[asked[0]] = 1;
        hand_back(asked[0]);
        for (int number = 0; number < MODELS; ++number) {
            if (ARE_KEPT && has_run[number] && number != asked[0]) {
                hand_back(number);
            }
        }
    }
    return 0;
}
