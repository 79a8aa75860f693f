/* fp8lab for C, and for languages that call C: casts, products of tensor cores bit for bit, and checks of outputs.
 *
 * Link with libfp8lab_c. Every function that can fail returns a status; the text of the last failure of this thread is
 * fp8lab_last_error(), and names the argument, what was expected and what was given. No exception leaves the library.
 * Texts that are returned belong to the library. Codes of formats of 8 bits and fewer take a byte each, f16 and bf16
 * two, f32 four, little endian. */
#ifndef FP8LAB_H
#define FP8LAB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when something is added. What is there stays as it is. */
#define FP8LAB_ABI 1

typedef enum fp8lab_status {
  FP8LAB_OK = 0,
  FP8LAB_BAD_ARGUMENT = 1,
  FP8LAB_NO_MEMORY = 2,
  FP8LAB_FAILED = 3
} fp8lab_status;

typedef enum fp8lab_verdict {
  FP8LAB_PASS = 0,
  FP8LAB_MISMATCH = 1,
  FP8LAB_NO_POWER = 3 /* right, but outputs that are wrong would pass on these inputs too */
} fp8lab_verdict;

typedef enum fp8lab_operand { FP8LAB_A = 0, FP8LAB_B = 1 } fp8lab_operand;

/* A product D [m, n] = A [m, k] . B [n, k]^T and everything that decides its bits. */
typedef struct fp8lab_product fp8lab_product;

int fp8lab_abi(void);
const char* fp8lab_version(void);
const char* fp8lab_last_error(void); /* "" before the first failure */

/* Names by index, NULL from the end on. */
const char* fp8lab_format_name(size_t index);
const char* fp8lab_model_name(size_t index);

/* The codes of values * scale in a format of at most 8 bits, under a cast profile such as "nvidia_satfinite". */
fp8lab_status fp8lab_encode(const char* format, const char* profile, float scale, const float* values, size_t count,
                            uint8_t* codes);
/* The values of codes of any format. */
fp8lab_status fp8lab_decode(const char* format, const void* codes, size_t count, float* values);

/* Starts with sm90.wgmma.e4m3, no promotion and f32 output. NULL without memory. */
fp8lab_product* fp8lab_product_new(void);
void fp8lab_product_free(fp8lab_product* product);

/* Operands are read when the product is computed or checked: they must live until then. B is [n, k]. */
fp8lab_status fp8lab_product_operand(fp8lab_product* product, fp8lab_operand which, const char* format,
                                     const void* codes, int64_t rows, int64_t k);
/* Inverse scales, value = code * scale: one for each tile of [tile_rows, tile_k], row-major; 0: all of the side. */
fp8lab_status fp8lab_product_scales(fp8lab_product* product, fp8lab_operand which, const float* scales, int64_t rows,
                                    int64_t columns, int64_t tile_rows, int64_t tile_k);
/* An instruction, or a definition such as "sm90.wgmma.e4m3:F=14"; promotion: terms between restarts of the
 * accumulator, which is then added in FP32; 0: never. */
fp8lab_status fp8lab_product_model(fp8lab_product* product, const char* model, int64_t promotion);
/* f32, bf16, f16, e4m3fn or e5m2. */
fp8lab_status fp8lab_product_output(fp8lab_product* product, const char* format);

/* The golden output, `bytes` long: m * n codes of the output format. threads 0: all. */
fp8lab_status fp8lab_product_compute(const fp8lab_product* product, void* d, size_t bytes, int threads);
/* Checks a kernel's output, bit by bit. `report`, if not NULL, is set to JSON: {"verdict", "outputs", "mismatches",
 * "text"}; it lives until the next check or the end of the product. */
fp8lab_status fp8lab_product_verify(fp8lab_product* product, const void* d, size_t bytes, int threads,
                                    fp8lab_verdict* verdict, const char** report);

#ifdef __cplusplus
}
#endif

#endif
