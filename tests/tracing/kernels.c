/* Kernels that nobody told diagmem about: the tracers must find out what they do. */
#include <stdint.h>
#include <string.h>

void relu(const int8_t *in, int8_t *out, int32_t n) {
    for (int32_t i = 0; i < n; ++i) out[i] = in[i] < 0 ? 0 : in[i];
}

/* Clears its output before it reads anything, then adds to it. */
void zero_first(const int8_t *in, int16_t *out, int32_t n) {
    volatile int16_t *sum = out;
    for (int32_t i = 0; i < n; ++i) sum[i] = 0;
    for (int32_t i = 0; i < n; ++i) sum[i] = (int16_t)(sum[i] + in[i]);
}

/* A 1x1 convolution whose outermost loop is over output channels. */
void channels_outermost(const int8_t *in, int8_t *out, const int8_t *filter, int32_t pixels, int32_t in_depth,
                        int32_t out_depth) {
    for (int32_t c = 0; c < out_depth; ++c) {
        for (int32_t p = 0; p < pixels; ++p) {
            int32_t sum = 0;
            for (int32_t k = 0; k < in_depth; ++k) sum += in[p * in_depth + k] * filter[c * in_depth + k];
            out[p * out_depth + c] = (int8_t)(sum >> 6);
        }
    }
}

void high_to_low(const int8_t *in, int8_t *out, int32_t n) {
    for (int32_t i = n; i-- > 0;) out[i] = (int8_t)~in[i];
}

typedef struct {
    int32_t height, width, depth;
} image_size;

/* A convolution with a square filter and no padding, in the order of the reference kernels. */
void valid_conv(const image_size *in_size, const int8_t *in, const image_size *out_size, int8_t *out,
                const int8_t *filter, int32_t kernel, int32_t stride) {
    for (int32_t y = 0; y < out_size->height; ++y)
        for (int32_t x = 0; x < out_size->width; ++x)
            for (int32_t c = 0; c < out_size->depth; ++c) {
                int32_t sum = 0;
                for (int32_t i = 0; i < kernel; ++i)
                    for (int32_t j = 0; j < kernel; ++j)
                        for (int32_t k = 0; k < in_size->depth; ++k)
                            sum += in[((y * stride + i) * in_size->width + x * stride + j) * in_size->depth + k] *
                                   filter[((c * kernel + i) * kernel + j) * in_size->depth + k];
                *out++ = (int8_t)(sum >> 7);
            }
}

void copy_words(const int32_t *in, int32_t *out, int32_t n) {
    for (int32_t i = 0; i < n; ++i) out[i] = in[i];
}

/* Where it writes depends on what it reads. */
void histogram(const uint8_t *in, uint8_t *out, int32_t n) {
    for (int32_t i = 0; i < n; ++i) out[in[i]]++;
}

/* Branches depend on the data, touches do not. */
void clip(const int8_t *in, int8_t *out, int32_t n) {
    for (int32_t i = 0; i < n; ++i) {
        volatile int8_t v = in[i];
        if (v > 100) v = 100;
        if (v < -100) v = -100;
        out[i] = v;
    }
}

typedef struct {
    int8_t a;
    int32_t b;
    int16_t c;
    int64_t d;
    uint8_t *out;
} parts;

/* Touches as many bytes as its arguments add up to. */
void many_arguments(const uint8_t *in, int8_t a, float b, int64_t c, double d, int32_t e, const parts *p, float f,
                    int64_t g) {
    int32_t n = a + (int32_t)b + (int32_t)c + (int32_t)d + e + p->a + p->b + p->c + (int32_t)p->d + (int32_t)f + (int32_t)g;
    for (int32_t i = 0; i < n; ++i) p->out[i] = in[i];
}

/* A wide number after one register is taken: it goes to an even pair. Likewise on the stack. */
void wide_arguments(const uint8_t *in, int64_t n, int32_t m, int64_t k, uint8_t *out) {
    for (int32_t i = 0; i < n + m + k; ++i) out[i] = in[i];
}

void uses_libc(const uint8_t *in, uint8_t *out, int32_t n) { memcpy(out, in, (size_t)n); }

void reads_anywhere(const uint8_t *in, uint8_t *out) { *out = in[0x10000000]; }
