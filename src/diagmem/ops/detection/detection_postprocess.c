/* TFLite_Detection_PostProcess: the best boxes, without those that overlap better ones too far. For each detection all
 * boxes and scores are read, then it is written: it is the best one behind that before it which no better one leaves
 * out, so that nothing is kept but the detections themselves. At last their number is written. */
#include <math.h>

#include "../numerics/_element.h"

/* Real numbers as they are stored. */
typedef struct {
    int32_t type; /* a type of _element.h */
    float scale;
    float zero_point;
} diagmem_stored_real;

typedef struct {
    int32_t boxes;
    int32_t box_size; /* elements from one encoded box to the next */
    int32_t classes;
    int32_t score_size; /* elements from the scores of one box to those of the next; one more with a background */
    int32_t detections;
    int32_t slots; /* places in the outputs for one detection, one for each of its best classes */
    int32_t rest;  /* places that no detection has */
    int32_t per_class;
    int32_t is_regular; /* each class by itself; else a box counts for its best class, and classes do not matter */
    float least_score;
    float most_overlap;
    float y_scale;
    float x_scale;
    float h_scale;
    float w_scale;
    diagmem_stored_real box;
    diagmem_stored_real score;
    const float *anchors;
} diagmem_detection_postprocess_params;

typedef struct {
    float y_low;
    float x_low;
    float y_high;
    float x_high;
} diagmem_box;

typedef struct {
    int32_t box;
    int32_t kind;
    float score;
} diagmem_candidate;

static inline float diagmem_real_at(const diagmem_stored_real *as, const unsigned char *in, int32_t place) {
    const unsigned char *const at = in + place * diagmem_element_bytes(as->type);
    return as->type == DIAGMEM_F32 ? diagmem_load_f32(at)
                                   : ((float)diagmem_load_int(at, as->type) - as->zero_point) * as->scale;
}

static inline diagmem_box diagmem_decoded_box(const diagmem_detection_postprocess_params *p, const unsigned char *in,
                                              int32_t number) {
    const float *const anchor = p->anchors + 4 * number;
    const int32_t place = number * p->box_size;
    const double y = (double)diagmem_real_at(&p->box, in, place) / (double)p->y_scale;
    const double x = (double)diagmem_real_at(&p->box, in, place + 1) / (double)p->x_scale;
    const double h = (double)diagmem_real_at(&p->box, in, place + 2) / (double)p->h_scale;
    const double w = (double)diagmem_real_at(&p->box, in, place + 3) / (double)p->w_scale;
    const float y_centre = (float)(y * (double)anchor[2] + (double)anchor[0]);
    const float x_centre = (float)(x * (double)anchor[3] + (double)anchor[1]);
    const float y_half = (float)(0.5 * exp(h) * (double)anchor[2]);
    const float x_half = (float)(0.5 * exp(w) * (double)anchor[3]);
    const diagmem_box found = {y_centre - y_half, x_centre - x_half, y_centre + y_half, x_centre + x_half};
    return found;
}

static inline float diagmem_box_overlap(const diagmem_box *a, const diagmem_box *b) {
    const float first = (a->y_high - a->y_low) * (a->x_high - a->x_low);
    const float second = (b->y_high - b->y_low) * (b->x_high - b->x_low);
    if (first <= 0.0f || second <= 0.0f) {
        return 0.0f;
    }
    const float height = (a->y_high < b->y_high ? a->y_high : b->y_high) - (a->y_low > b->y_low ? a->y_low : b->y_low);
    const float width = (a->x_high < b->x_high ? a->x_high : b->x_high) - (a->x_low > b->x_low ? a->x_low : b->x_low);
    const float shared = (height > 0.0f ? height : 0.0f) * (width > 0.0f ? width : 0.0f);
    return shared / (first + second - shared);
}

/* Whether none of the detections so far leaves the candidate out. */
static inline int diagmem_box_stands(const diagmem_detection_postprocess_params *p, const unsigned char *in,
                                     const diagmem_candidate *candidate, int32_t count, const unsigned char *boxes,
                                     const unsigned char *kinds) {
    const diagmem_box box = diagmem_decoded_box(p, in, candidate->box);
    int32_t of_class = 0;
    for (int32_t i = 0; i < count; ++i) {
        if (!p->is_regular || diagmem_load_f32(kinds + 4 * p->slots * i) == (float)candidate->kind) {
            diagmem_box other;
            memcpy(&other, boxes + 16 * p->slots * i, sizeof other);
            ++of_class;
            if (diagmem_box_overlap(&other, &box) > p->most_overlap) {
                return 0;
            }
        }
    }
    return of_class < p->per_class;
}

/* A box with one of its classes, or with its best one. */
static inline diagmem_candidate diagmem_candidate_of(const diagmem_detection_postprocess_params *p,
                                                     const unsigned char *scores, int32_t box, int32_t kind) {
    const int32_t place = box * p->score_size + p->score_size - p->classes;
    diagmem_candidate found = {box, kind, diagmem_real_at(&p->score, scores, place + kind)};
    for (int32_t c = 1; !p->is_regular && c < p->classes; ++c) {
        const float score = diagmem_real_at(&p->score, scores, place + c);
        if (score > found.score) {
            found.score = score;
            found.kind = c;
        }
    }
    return found;
}

/* Whether one comes behind the other: it is worse, or as good and of a later class, or of a later box. */
static inline int diagmem_comes_behind(const diagmem_detection_postprocess_params *p, const diagmem_candidate *one,
                                       const diagmem_candidate *other) {
    if (one->score != other->score) {
        return one->score < other->score;
    }
    return p->is_regular && one->kind != other->kind ? one->kind > other->kind : one->box > other->box;
}

/* The best one behind the last that stands; its box is -1 where there is none. */
static inline diagmem_candidate diagmem_next_box(const diagmem_detection_postprocess_params *p,
                                                 const unsigned char *encoded, const unsigned char *scores,
                                                 const diagmem_candidate *last, int32_t count,
                                                 const unsigned char *boxes, const unsigned char *kinds) {
    diagmem_candidate best = {-1, 0, 0.0f};
    for (int32_t kind = 0; kind < (p->is_regular ? p->classes : 1); ++kind) {
        for (int32_t box = 0; box < p->boxes; ++box) {
            const diagmem_candidate found = diagmem_candidate_of(p, scores, box, kind);
            if (found.score >= p->least_score && (best.box < 0 || found.score > best.score) &&
                (count == 0 || diagmem_comes_behind(p, &found, last)) &&
                diagmem_box_stands(p, encoded, &found, count, boxes, kinds)) {
                best = found;
            }
        }
    }
    return best;
}

/* The next best class of a box, of equal ones the first; its box is -1 where there are no more. */
static inline diagmem_candidate diagmem_next_class(const diagmem_detection_postprocess_params *p,
                                                   const unsigned char *scores, const diagmem_candidate *last) {
    const int32_t place = last->box * p->score_size + p->score_size - p->classes;
    diagmem_candidate best = {-1, 0, 0.0f};
    for (int32_t c = 0; c < p->classes && last->box >= 0; ++c) {
        const float score = diagmem_real_at(&p->score, scores, place + c);
        if ((score < last->score || (score == last->score && c > last->kind)) && (best.box < 0 || score > best.score)) {
            best.box = last->box;
            best.kind = c;
            best.score = score;
        }
    }
    return best;
}

static inline void diagmem_detection_postprocess(const diagmem_detection_postprocess_params *p, const void *encoded,
                                                 const void *scores, void *boxes, void *kinds, void *best_scores,
                                                 void *number) {
    diagmem_candidate last = {0, 0, 0.0f};
    int32_t count = 0;
    for (int32_t i = 0; i < p->detections; ++i) {
        diagmem_candidate next = {-1, 0, 0.0f};
        if (count == i) {
            next = diagmem_next_box(p, encoded, scores, &last, count, boxes, kinds);
        }
        if (next.box >= 0) {
            last = next;
            ++count;
        }
        for (int32_t place = i * p->slots; place < (i + 1) * p->slots; ++place) {
            diagmem_box box = {0.0f, 0.0f, 0.0f, 0.0f};
            if (next.box >= 0) {
                box = diagmem_decoded_box(p, encoded, next.box);
            }
            memcpy((unsigned char *)boxes + 16 * place, &box, sizeof box);
            diagmem_store_f32((unsigned char *)kinds + 4 * place, (float)next.kind);
            diagmem_store_f32((unsigned char *)best_scores + 4 * place, next.box >= 0 ? next.score : 0.0f);
            next = diagmem_next_class(p, scores, &next);
        }
    }
    const size_t begin = (size_t)p->detections * (size_t)p->slots;
    memset((unsigned char *)boxes + 16 * begin, 0, 16 * (size_t)p->rest);
    memset((unsigned char *)kinds + 4 * begin, 0, 4 * (size_t)p->rest);
    memset((unsigned char *)best_scores + 4 * begin, 0, 4 * (size_t)p->rest);
    diagmem_store_f32(number, (float)count);
}
