/* SignalRfft and SignalIrfft, powers of two: radix 4, and one radix 2 where the power is odd. Row by row:
 * complex numbers of the input are read, each pair or single one just before what the stages begin with is written; the
 * stages then work in the output alone. */
#include <stdint.h>

/* The radix of the outermost stage. */
static inline int32_t diagmem_fft_radix(int32_t size) {
    return size % 4 == 0 ? 4 : 2;
}

/* The place of the input that stages begin with at this place. */
static inline int32_t diagmem_fft_source(int32_t size, int32_t place) {
    int32_t source = 0;
    for (int32_t step = 1; size > 1; place %= size) {
        const int32_t radix = diagmem_fft_radix(size);
        size /= radix;
        source += place / size * step;
        step *= radix;
    }
    return source;
}

/* The place at which stages begin with this one of the input. */
static inline int32_t diagmem_fft_place(int32_t size, int32_t source) {
    int32_t place = 0;
    while (size > 1) {
        const int32_t radix = diagmem_fft_radix(size);
        size /= radix;
        place += source % radix * size;
        source /= radix;
    }
    return place;
}

/* Defines the arithmetic of whole numbers with so many bits; `wide` holds products of two. */
#define DIAGMEM_FFT_WHOLE(suffix, type, wide, bits)                                                                    \
    static inline wide diagmem_fft_rounded_##suffix(wide x) {                                                          \
        return (type)((x + ((wide)1 << (bits - 2))) >> (bits - 1));                                                    \
    }                                                                                                                  \
    static inline wide diagmem_fft_part_##suffix(wide x, int32_t by) {                                                 \
        return diagmem_fft_rounded_##suffix(x * ((((wide)1 << (bits - 1)) - 1) / by));                                 \
    }                                                                                                                  \
    static inline wide diagmem_fft_half_##suffix(wide x) {                                                             \
        return x >> 1;                                                                                                 \
    }                                                                                                                  \
    static inline type diagmem_fft_back_##suffix(type x, int32_t samples) {                                            \
        (void)samples;                                                                                                 \
        return x;                                                                                                      \
    }

DIAGMEM_FFT_WHOLE(s16, int16_t, int32_t, 16)
DIAGMEM_FFT_WHOLE(s32, int32_t, int64_t, 32)

/* Real numbers have room for sums: only what is transformed back is divided, at last. */
static inline float diagmem_fft_rounded_f32(float x) {
    return x;
}

static inline float diagmem_fft_part_f32(float x, int32_t by) {
    (void)by;
    return x;
}

static inline float diagmem_fft_half_f32(float x) {
    return x * 0.5f;
}

static inline float diagmem_fft_back_f32(float x, int32_t samples) {
    return x / (float)samples;
}

/* Defines transforms of elements of a type; `wide` holds sums of several. */
#define DIAGMEM_REAL_FFT(suffix, type, wide)                                                                           \
    typedef struct {                                                                                                   \
        int32_t rows;                                                                                                  \
        int32_t in_size;           /* elements of a row of the input */                                                \
        int32_t size;              /* complex numbers: half of the samples */                                          \
        const type *twiddles;      /* as many, two parts each */                                                       \
        const type *real_twiddles; /* half as many: they join complex numbers and samples */                           \
    } diagmem_real_fft_##suffix##_params;                                                                              \
                                                                                                                       \
    typedef struct {                                                                                                   \
        wide real;                                                                                                     \
        wide imaginary;                                                                                                \
    } diagmem_complex_##suffix;                                                                                        \
                                                                                                                       \
    static inline diagmem_complex_##suffix diagmem_fft_divided_##suffix(diagmem_complex_##suffix x, int32_t by) {      \
        const diagmem_complex_##suffix found = {diagmem_fft_part_##suffix(x.real, by),                                 \
                                                diagmem_fft_part_##suffix(x.imaginary, by)};                           \
        return found;                                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    static inline diagmem_complex_##suffix diagmem_fft_at_##suffix(const type *numbers, int32_t place) {               \
        const diagmem_complex_##suffix found = {numbers[2 * place], numbers[2 * place + 1]};                           \
        return found;                                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    static inline void diagmem_fft_put_##suffix(type *numbers, int32_t place, wide real, wide imaginary) {             \
        numbers[2 * place] = (type)real;                                                                               \
        numbers[2 * place + 1] = (type)imaginary;                                                                      \
    }                                                                                                                  \
                                                                                                                       \
    static inline diagmem_complex_##suffix diagmem_fft_times_##suffix(diagmem_complex_##suffix x,                      \
                                                                      const type *twiddles, int32_t place) {           \
        const diagmem_complex_##suffix y = diagmem_fft_at_##suffix(twiddles, place);                                   \
        const diagmem_complex_##suffix found = {                                                                       \
            diagmem_fft_rounded_##suffix(x.real * y.real - x.imaginary * y.imaginary),                                 \
            diagmem_fft_rounded_##suffix(x.real * y.imaginary + x.imaginary * y.real)};                                \
        return found;                                                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    /* Number `part` of a butterfly, divided by its radix and turned. */                                               \
    static inline diagmem_complex_##suffix diagmem_fft_turned_##suffix(const type *numbers, int32_t place,             \
                                                                       int32_t radix, const type *twiddles,            \
                                                                       int32_t twiddle) {                              \
        return diagmem_fft_times_##suffix(diagmem_fft_divided_##suffix(diagmem_fft_at_##suffix(numbers, place), radix),\
                                          twiddles, twiddle);                                                          \
    }                                                                                                                  \
                                                                                                                       \
    static inline void diagmem_fft_two_##suffix(type *numbers, int32_t place, int32_t part, const type *twiddles,      \
                                                int32_t twiddle) {                                                     \
        const diagmem_complex_##suffix x =                                                                             \
            diagmem_fft_divided_##suffix(diagmem_fft_at_##suffix(numbers, place), 2);                                  \
        const diagmem_complex_##suffix y = diagmem_fft_turned_##suffix(numbers, place + part, 2, twiddles, twiddle);   \
        diagmem_fft_put_##suffix(numbers, place + part, x.real - y.real, x.imaginary - y.imaginary);                   \
        diagmem_fft_put_##suffix(numbers, place, x.real + y.real, x.imaginary + y.imaginary);                          \
    }                                                                                                                  \
                                                                                                                       \
    static inline void diagmem_fft_four_##suffix(type *numbers, int32_t place, int32_t part, const type *twiddles,     \
                                                 int32_t twiddle, int32_t is_inverse) {                                \
        const diagmem_complex_##suffix a =                                                                             \
            diagmem_fft_divided_##suffix(diagmem_fft_at_##suffix(numbers, place), 4);                                  \
        const diagmem_complex_##suffix b = diagmem_fft_turned_##suffix(numbers, place + part, 4, twiddles, twiddle);   \
        const diagmem_complex_##suffix c =                                                                             \
            diagmem_fft_turned_##suffix(numbers, place + 2 * part, 4, twiddles, 2 * twiddle);                          \
        const diagmem_complex_##suffix d =                                                                             \
            diagmem_fft_turned_##suffix(numbers, place + 3 * part, 4, twiddles, 3 * twiddle);                          \
        const diagmem_complex_##suffix even = {(type)(a.real + c.real), (type)(a.imaginary + c.imaginary)};            \
        const diagmem_complex_##suffix gap = {(type)(a.real - c.real), (type)(a.imaginary - c.imaginary)};             \
        const diagmem_complex_##suffix odd = {(type)(b.real + d.real), (type)(b.imaginary + d.imaginary)};             \
        const diagmem_complex_##suffix turn = {(type)(b.real - d.real), (type)(b.imaginary - d.imaginary)};            \
        const int32_t ahead = place + (is_inverse ? 3 : 1) * part;                                                     \
        const int32_t behind = place + (is_inverse ? 1 : 3) * part;                                                    \
        diagmem_fft_put_##suffix(numbers, place + 2 * part, even.real - odd.real, even.imaginary - odd.imaginary);     \
        diagmem_fft_put_##suffix(numbers, place, even.real + odd.real, even.imaginary + odd.imaginary);                \
        diagmem_fft_put_##suffix(numbers, ahead, gap.real + turn.imaginary, gap.imaginary - turn.real);                \
        diagmem_fft_put_##suffix(numbers, behind, gap.real - turn.imaginary, gap.imaginary + turn.real);               \
    }                                                                                                                  \
                                                                                                                       \
    /* All stages, the innermost first. */                                                                             \
    static inline void diagmem_fft_stages_##suffix(const diagmem_real_fft_##suffix##_params *p, type *numbers,         \
                                                   int32_t is_inverse) {                                               \
        int32_t bottom = p->size;                                                                                      \
        while (bottom % 4 == 0) {                                                                                      \
            bottom /= 4;                                                                                               \
        }                                                                                                              \
        for (int32_t part = 1; part < p->size;) {                                                                      \
            const int32_t radix = part == 1 ? (bottom == 2 ? 2 : 4) : 4;                                               \
            const int32_t stride = p->size / (radix * part);                                                           \
            for (int32_t block = 0; block < p->size; block += radix * part) {                                          \
                for (int32_t k = 0; k < part; ++k) {                                                                   \
                    if (radix == 2) {                                                                                  \
                        diagmem_fft_two_##suffix(numbers, block + k, part, p->twiddles, k * stride);                   \
                    } else {                                                                                           \
                        diagmem_fft_four_##suffix(numbers, block + k, part, p->twiddles, k * stride, is_inverse);      \
                    }                                                                                                  \
                }                                                                                                      \
            }                                                                                                          \
            part *= radix;                                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    /* A number and what mirrors it, halved and joined: their sum, and their difference turned. */                     \
    static inline void diagmem_fft_joined_##suffix(const diagmem_real_fft_##suffix##_params *p,                        \
                                                   diagmem_complex_##suffix near, diagmem_complex_##suffix far,        \
                                                   int32_t k, diagmem_complex_##suffix *sum,                           \
                                                   diagmem_complex_##suffix *rest) {                                   \
        far.imaginary = (type)-far.imaginary;                                                                          \
        near = diagmem_fft_divided_##suffix(near, 2);                                                                  \
        far = diagmem_fft_divided_##suffix(far, 2);                                                                    \
        sum->real = near.real + far.real;                                                                              \
        sum->imaginary = near.imaginary + far.imaginary;                                                               \
        near.real -= far.real;                                                                                         \
        near.imaginary -= far.imaginary;                                                                               \
        *rest = diagmem_fft_times_##suffix(near, p->real_twiddles, k - 1);                                             \
    }                                                                                                                  \
                                                                                                                       \
    static inline void diagmem_real_fft_##suffix##_row(const diagmem_real_fft_##suffix##_params *p, const type *in,    \
                                                       type *out) {                                                    \
        for (int32_t place = 0; place < p->size; ++place) {                                                            \
            const int32_t source = 2 * diagmem_fft_source(p->size, place);                                             \
            const type real = source < p->in_size ? in[source] : 0;                                                    \
            const type imaginary = source + 1 < p->in_size ? in[source + 1] : 0;                                       \
            diagmem_fft_put_##suffix(out, place, real, imaginary);                                                     \
        }                                                                                                              \
        diagmem_fft_stages_##suffix(p, out, 0);                                                                        \
        const diagmem_complex_##suffix start = diagmem_fft_divided_##suffix(diagmem_fft_at_##suffix(out, 0), 2);       \
        diagmem_fft_put_##suffix(out, 0, start.real + start.imaginary, 0);                                             \
        diagmem_fft_put_##suffix(out, p->size, start.real - start.imaginary, 0);                                       \
        for (int32_t k = 1; k <= p->size / 2; ++k) {                                                                   \
            diagmem_complex_##suffix sum;                                                                              \
            diagmem_complex_##suffix rest;                                                                             \
            diagmem_fft_joined_##suffix(p, diagmem_fft_at_##suffix(out, k), diagmem_fft_at_##suffix(out, p->size - k), \
                                        k, &sum, &rest);                                                               \
            diagmem_fft_put_##suffix(out, k, diagmem_fft_half_##suffix(sum.real + rest.real),                          \
                                     diagmem_fft_half_##suffix(sum.imaginary + rest.imaginary));                       \
            diagmem_fft_put_##suffix(out, p->size - k, diagmem_fft_half_##suffix(sum.real - rest.real),                \
                                     diagmem_fft_half_##suffix(rest.imaginary - sum.imaginary));                       \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static inline void diagmem_inverse_real_fft_##suffix##_row(const diagmem_real_fft_##suffix##_params *p,            \
                                                               const type *in, type *out) {                            \
        diagmem_complex_##suffix start = {(type)((wide)in[0] + in[2 * p->size]),                                       \
                                          (type)((wide)in[0] - in[2 * p->size])};                                      \
        start = diagmem_fft_divided_##suffix(start, 2);                                                                \
        diagmem_fft_put_##suffix(out, 0, start.real, start.imaginary);                                                 \
        for (int32_t k = 1; k <= p->size / 2; ++k) {                                                                   \
            diagmem_complex_##suffix sum;                                                                              \
            diagmem_complex_##suffix rest;                                                                             \
            diagmem_fft_joined_##suffix(p, diagmem_fft_at_##suffix(in, k), diagmem_fft_at_##suffix(in, p->size - k),   \
                                        k, &sum, &rest);                                                               \
            diagmem_fft_put_##suffix(out, diagmem_fft_place(p->size, k), sum.real + rest.real,                         \
                                     sum.imaginary + rest.imaginary);                                                  \
            diagmem_fft_put_##suffix(out, diagmem_fft_place(p->size, p->size - k), sum.real - rest.real,               \
                                     -(wide)(type)(sum.imaginary - rest.imaginary));                                   \
        }                                                                                                              \
        diagmem_fft_stages_##suffix(p, out, 1);                                                                        \
        for (int32_t i = 0; i < 2 * p->size; ++i) {                                                                    \
            out[i] = diagmem_fft_back_##suffix(out[i], 2 * p->size);                                                   \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static inline void diagmem_real_fft_##suffix(const diagmem_real_fft_##suffix##_params *p, const type *in,          \
                                                 type *out) {                                                          \
        for (int32_t row = 0; row < p->rows; ++row, in += p->in_size, out += 2 * p->size + 2) {                        \
            diagmem_real_fft_##suffix##_row(p, in, out);                                                               \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static inline void diagmem_inverse_real_fft_##suffix(const diagmem_real_fft_##suffix##_params *p, const type *in,  \
                                                         type *out) {                                                  \
        for (int32_t row = 0; row < p->rows; ++row, in += p->in_size, out += 2 * p->size) {                            \
            diagmem_inverse_real_fft_##suffix##_row(p, in, out);                                                       \
        }                                                                                                              \
    }

DIAGMEM_REAL_FFT(s16, int16_t, int32_t)
DIAGMEM_REAL_FFT(s32, int32_t, int64_t)
DIAGMEM_REAL_FFT(f32, float, float)
