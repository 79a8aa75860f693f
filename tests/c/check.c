/* The C interface, from C: casts, a product whose value is known, right and wrong outputs, errors. */
#include "fp8lab.h"

#include <stdio.h>
#include <string.h>

static int failures = 0;

static void check(int holds, const char* what) {
  if (holds) return;
  printf("FAILED: %s (%s)\n", what, fp8lab_last_error());
  ++failures;
}

static void names(void) {
  size_t models = 0;
  int hopper = 0;
  for (const char* name; (name = fp8lab_model_name(models)) != NULL; ++models)
    hopper |= strcmp(name, "sm90.wgmma.e4m3") == 0;
  check(models > 100 && hopper, "models by index");
  check(strcmp(fp8lab_format_name(0), "e4m3fn") == 0 && fp8lab_format_name(1000) == NULL, "formats by index");
  check(fp8lab_abi() == FP8LAB_ABI && strlen(fp8lab_version()) >= 5, "version");
}

static void casts(void) {
  const float values[4] = {0.3F, 464.0F, -1000.0F, 0.0F};
  uint8_t codes[4];
  float back[4];
  check(fp8lab_encode("e4m3fn", "nvidia_satfinite", 1.0F, values, 4, codes) == FP8LAB_OK, "encode");
  check(codes[0] == 0x2a && codes[1] == 0x7e && codes[2] == 0xfe && codes[3] == 0, "codes of E4M3");
  check(fp8lab_decode("e4m3fn", codes, 4, back) == FP8LAB_OK, "decode");
  check(back[0] == 0.3125F && back[1] == 448.0F && back[2] == -448.0F && back[3] == 0.0F, "values of E4M3");
  check(fp8lab_encode("e4m3", "nvidia_satfinit", 1.0F, values, 4, codes) == FP8LAB_BAD_ARGUMENT, "a wrong profile");
  check(strstr(fp8lab_last_error(), "did you mean nvidia_satfinite?") != NULL, "and what was meant");
  check(fp8lab_encode("e4m3fn", NULL, 1.0F, values, 4, codes) == FP8LAB_BAD_ARGUMENT &&
            strcmp(fp8lab_last_error(), "profile: expected a pointer, got NULL") == 0, "no profile");
}

enum { M = 8, N = 12, K = 512 };

static void products(void) {
  static uint8_t a[M * K], b[N * K];
  static float d[M * N], plain[M * N], ones[1];
  const char* report = NULL;
  fp8lab_verdict verdict = FP8LAB_MISMATCH;
  fp8lab_product* p = fp8lab_product_new();
  unsigned state = 1;
  for (int i = 0; i < M * K + N * K; ++i) {
    state = state * 1664525U + 1013904223U;
    /* Codes of normal numbers, of both signs. */
    const uint8_t code = (uint8_t)((state >> 24 & 0x80) | (0x20 + (state >> 16 & 0x2f)));
    if (i < M * K) a[i] = code; else b[i - M * K] = code;
  }
  check(p != NULL, "a product");
  check(fp8lab_product_operand(p, FP8LAB_A, "e4m3fn", a, M, K) == FP8LAB_OK, "A");
  check(fp8lab_product_operand(p, FP8LAB_B, "e4m3fn", b, N, K) == FP8LAB_OK, "B");
  check(fp8lab_product_compute(p, plain, sizeof plain, 0) == FP8LAB_OK, "without promotion");
  check(fp8lab_product_model(p, "sm90.wgmma.e4m3", 128) == FP8LAB_OK, "the model");
  check(fp8lab_product_compute(p, d, sizeof d, 0) == FP8LAB_OK, "with promotion");
  check(memcmp(d, plain, sizeof d) != 0, "promotion changes bits");
  check(fp8lab_product_verify(p, d, sizeof d, 0, &verdict, &report) == FP8LAB_OK && verdict == FP8LAB_PASS, "a right output");
  check(report != NULL && strstr(report, "\"verdict\":\"pass\"") != NULL, "its report");
  check(fp8lab_product_verify(p, plain, sizeof plain, 0, &verdict, &report) == FP8LAB_OK && verdict == FP8LAB_MISMATCH, "a wrong one");
  check(strstr(report, "no_promotion") != NULL, "its report names the cause");
  check(fp8lab_product_compute(p, d, 4, 0) == FP8LAB_BAD_ARGUMENT &&
            strcmp(fp8lab_last_error(), "bytes: expected 384, got 4") == 0, "too few bytes");
  check(fp8lab_product_model(p, "sm90.wgma.e4m3", 0) == FP8LAB_BAD_ARGUMENT, "a wrong model");
  ones[0] = 2.0F;
  check(fp8lab_product_scales(p, FP8LAB_A, ones, 1, 1, 0, 0) == FP8LAB_OK &&
            fp8lab_product_compute(p, plain, sizeof plain, 0) == FP8LAB_OK && plain[3] == 2.0F * d[3], "a scale of 2");
  check(fp8lab_product_output(p, "bf16") == FP8LAB_OK && fp8lab_product_compute(p, plain, sizeof plain / 2, 0) == FP8LAB_OK, "BF16");
  fp8lab_product_free(p);
  fp8lab_product_free(NULL);
  static uint8_t many[32768];
  memset(many, 0x38, sizeof many); /* 1.0 in E4M3 */
  p = fp8lab_product_new();
  fp8lab_product_operand(p, FP8LAB_A, "e4m3fn", many, 1, 32768);
  fp8lab_product_operand(p, FP8LAB_B, "e4m3fn", many, 1, 32768);
  check(fp8lab_product_compute(p, d, 4, 1) == FP8LAB_OK && d[0] == 16384.0F, "32768 ones give 16384 on Hopper");
  fp8lab_product_free(p);
}

int main(void) {
  names();
  casts();
  products();
  printf("%d failures\n", failures);
  return failures != 0;
}
