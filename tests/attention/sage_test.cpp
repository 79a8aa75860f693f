// SageAttention's quantization on values that are computed by hand, and mistakes that are named.
// apps/python/tests/test_sage.py compares whole outputs with the rules in NumPy.

#include "fp8lab/attention/sage.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/metrics/comparison.hpp"

namespace fp8lab::sage_test {
namespace {

std::vector<float> normal(const std::string& name, std::int64_t size, float mean = 0.0F) {
  const RandomStream stream(11, name);
  std::vector<float> values;
  for (std::int64_t i = 0; i < size; ++i)
    values.push_back(mean + static_cast<float>(stream.normal(static_cast<std::uint64_t>(i))));
  return values;
}

struct Problem {
  AttentionShape shape;
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;

  explicit Problem(std::int64_t m = 256, std::int64_t n = 256)
      : shape{2, 2, m, n, 64, 64},
        q(normal("q", 2 * m * 64, 0.3F)),
        k(normal("k", n * 64, 2.0F)),
        v(normal("v", n * 64)) {}
  [[nodiscard]] SageInputs inputs() const { return {q, k, v, shape}; }
};

std::vector<std::string> names_of(const AttentionVerdict& verdict) {
  std::vector<std::string> names;
  for (const AttentionCause& cause : verdict.causes) names.push_back(cause.name);
  return names;
}

double error_of(const Problem& p, const SageKernel& kernel, const SageOptions& options) {
  const std::vector<float> o = sage_attention(p.inputs(), kernel, options);
  return compare(sage_reference(p.inputs(), options), o).relative_l2;
}

}  // namespace

TEST_CASE("sage: INT8 codes, scales and means by hand", "[attention]") {
  // One row of Q; K's rows are 3 and 1 in every column but one, V's columns 7 and 14 at most.
  const std::vector<float> q{1.0F, -2.0F, 0.25F, 0.0F};
  const std::vector<float> k{3.0F, 3.0F, 3.0F, 2.0F, 1.0F, 1.0F, 1.0F, 2.0F};
  const std::vector<float> v{7.0F, -14.0F, 3.5F, 7.0F};
  const SageInputs in{q, k, v, {1, 1, 1, 2, 4, 2}};
  const SageKernel& kernel = find_sage_kernel("sageattention2.sm89");
  const SageOperands found = quantize_sage(in, kernel, {}, 0);
  const auto int8 = [](const std::vector<std::uint8_t>& codes) {
    std::vector<int> values;
    for (const std::uint8_t code : codes) values.push_back(static_cast<std::int8_t>(code));
    return values;
  };
  const float scale = 2.0F / 127.0F + 1e-7F;
  CHECK(found.q[0].scales == std::vector<float>{scale});
  // 1 / scale = 63.4996: with 0.5 it is cut to 63.
  CHECK(int8(found.q[0].codes) == std::vector<int>{63, -127, 16, 0});
  // K without its mean 2: rows 1 and -1, and 0 in the last column. Both are of one thread.
  CHECK(int8(found.k.codes) == std::vector<int>{127, 127, 127, 0, -127, -127, -127, 0});
  CHECK(found.k.scales == std::vector<float>{1.0F / 127.0F + 1e-7F, 1.0F / 127.0F + 1e-7F});
  CHECK(found.v.scales == std::vector<float>{7.0F / 448.0F, 14.0F / 448.0F});
  // 448, -448, 224 and 224 in E4M3.
  CHECK(found.v.codes == std::vector<std::uint8_t>{0x7E, 0xFE, 0x76, 0x76});
  const SageOperands kept = quantize_sage(in, kernel, {.smooth = false}, 0);
  CHECK(int8(kept.k.codes) == std::vector<int>{127, 127, 127, 85, 42, 42, 42, 85});
}

TEST_CASE("sage: NVFP4 blocks by hand", "[attention]") {
  // Q's blocks have no mean: each row and its opposite.
  std::vector<float> q(2 * 64, 0.0F);
  q[0] = 6.0F;
  q[1] = -2.4F;
  q[64] = -6.0F;
  q[65] = 2.4F;
  const std::vector<float> k(2 * 64, 1.0F);
  std::vector<float> v(2 * 64, 0.0F);
  v[0] = 3.0F;
  v[64] = 1.0F;
  const SageInputs in{q, k, v, {1, 1, 2, 2, 64, 64}};
  const SageOperands found = quantize_sage(in, find_sage_kernel("sageattention3"), {}, 0);
  CHECK(found.q[0].scales.size() == 128 * 4);
  CHECK(found.q[0].scales[0] == 1.0F);
  CHECK(found.q[0].scales[1] == 0.0F);
  CHECK(found.q[0].codes[0] == 7);   // 6
  CHECK(found.q[0].codes[1] == 12);  // -2.4, to -2
  // K is its mean everywhere.
  CHECK(std::ranges::count(found.k.codes, 0) == std::ssize(found.k.codes));
  CHECK(found.added[0] == std::vector<float>(128, 0.0F));
  // A column of V is a row of codes: 3 and 1 over 0.5.
  CHECK(found.v.scales[0] == 0.5F);
  CHECK(found.v.codes[0] == 7);
  CHECK(found.v.codes[1] == 4);
}

TEST_CASE("sage: errors are those of the formats, and K's mean matters", "[attention]") {
  const Problem p(136, 136);
  for (const SageKernel& kernel : sage_kernels()) {
    INFO(kernel.name);
    const double error = error_of(p, kernel, {});
    CHECK(error > (kernel.nvfp4 ? 0.08 : 0.02));
    CHECK(error < (kernel.nvfp4 ? 0.3 : 0.06));
    CHECK(error < error_of(p, kernel, {.smooth = false}));
    const std::vector<float> alone = sage_attention(p.inputs(), kernel, {.threads = 1});
    CHECK(alone == sage_attention(p.inputs(), kernel, {.threads = 3}));
    CHECK(error_of(p, kernel, {.causal = true}) < 0.4);
  }
}

TEST_CASE("sage: right outputs pass, and each mistake is named", "[attention]") {
  const SageOptions alone{.threads = 1};  // small products
  const Problem small(40, 136);
  const Problem large(136, 136);  // with two blocks of Q in NVFP4
  struct Case {
    const char* kernel;
    const char* name;
    SageVariant variant;
  };
  const std::vector<Case> cases{
      {"sageattention2.sm89", "k_scale_of_other_group", {.k_scale_shift = 1}},
      {"sageattention2.sm89", "k_scale_of_other_block", {.k_scale_shift = -4}},
      {"sageattention2.sm90", "q_scale_of_other_group", {.q_scale_shift = -1}},
      {"sageattention2.sm90", "v_scale_of_other_channel", {.v_scale_shift = 1}},
      {"sageattention2.sm90", "v_scale_dropped", {.no_v_scale = true}},
      {"sageattention2.sm89", "int8_rounding", {.cut = true}},
      {"sageattention2.sm89", "p_scale", {.plain_p = true}},
      {"sageattention2.sm89", "no_promotion", {.one_level = true}},
      {"sageattention2.sm89", "sum_after_cast", {.sum_after_cast = true}},
      {"sageattention3", "q_mean_not_added", {.no_q_mean = true}},
      {"sageattention3", "q_mean_of_other_block", {.same_q_mean = true}},
      {"sageattention3", "p_block_scale", {.repaired_p_scale = true}},
      {"sageattention3", "p_scale", {.plain_p = true}},
      {"sageattention3", "k_scale_of_other_group", {.k_scale_shift = 1}},
      {"sageattention3", "v_scale_of_other_channel", {.v_scale_shift = -1}},
      {"sageattention3", "sum_after_cast", {.sum_after_cast = true}},
  };
  for (const Case& one : cases) {
    const SageKernel& kernel = find_sage_kernel(one.kernel);
    const Problem& p = kernel.nvfp4 ? large : small;
    const auto verify = [&](const std::vector<float>& o) {
      return verify_sage_attention(p.inputs(), kernel, alone, o, FormatId::f32);
    };
    INFO(one.kernel << ", " << one.name);
    const AttentionVerdict wrong = verify(sage_attention(p.inputs(), kernel, alone, one.variant));
    CHECK_FALSE(wrong.pass);
    CHECK(names_of(wrong) == std::vector<std::string>{one.name});
  }
  for (const SageKernel& kernel : sage_kernels()) {
    INFO(kernel.name);
    const Problem& p = small;
    const std::vector<float> right = sage_attention(p.inputs(), kernel, alone);
    const auto verify = [&](const std::vector<float>& o) {
      return verify_sage_attention(p.inputs(), kernel, alone, o, FormatId::f32);
    };
    CHECK(verify(right).pass);
    const std::vector<float> kept =
        sage_attention(p.inputs(), kernel, {.smooth = false, .threads = 1});
    CHECK(names_of(verify(kept)) == std::vector<std::string>{"k_mean_not_removed"});
    std::vector<float> strange = right;
    for (std::size_t i = 0; i < strange.size(); ++i) strange[i] = std::sin(static_cast<float>(i));
    CHECK(verify(strange).causes.empty());
    CHECK_FALSE(verify(strange).pass);
  }
}

TEST_CASE("sage: bad arguments are refused by name", "[attention]") {
  const Problem p(8, 16);
  const SageKernel& kernel = find_sage_kernel("sageattention2.sm90");
  CHECK_THROWS_WITH(find_sage_kernel("sage"), contains("sageattention3"));
  CHECK_THROWS_WITH(find_sage_granularity("per_block"), contains("per_thread, per_warp"));
  CHECK_THROWS_WITH(sage_attention(p.inputs(), kernel, {.causal = true}),
                    "causal: expected as many rows of K as of Q, 8, got 16");
  CHECK_THROWS_WITH(sage_attention(p.inputs(), kernel, {.input = FormatId::f32}),
                    "input: expected bf16 or f16, got f32");
  CHECK_THROWS_WITH(sage_attention(p.inputs(), kernel, {.softmax_scale = -1.0F}),
                    "softmax_scale: expected a finite number >= 0, got -1");
  CHECK_THROWS_WITH(quantize_sage(p.inputs(), kernel, {}, 1), "kv_head: expected 0 to 0, got 1");
  Problem wide = p;
  wide.shape.d = 63;
  CHECK_THROWS_WITH(sage_attention(wide.inputs(), kernel, {}),
                    "Q: expected 1008 values, got 1024 values");
  Problem nan = p;
  nan.k[3] = NAN;
  CHECK_THROWS_WITH(sage_attention(nan.inputs(), kernel, {}),
                    "K: expected finite numbers, got nan");
  const std::vector<float> narrow(8 * 32 + 16 * 32 + 16 * 32, 1.0F);
  const SageInputs in{std::span(narrow).first(8 * 32),
                      std::span(narrow).first(16 * 32),
                      std::span(narrow).first(16 * 32),
                      {1, 1, 8, 16, 32, 32}};
  CHECK_THROWS_WITH(sage_attention(in, find_sage_kernel("sageattention3"), {}),
                    "Q: expected d = 64 or 128, got d = 32");
  CHECK_THROWS_WITH(verify_sage_attention(p.inputs(), kernel, {}, p.v, FormatId::f32, -1.0),
                    "tolerance: expected 0 (every bit) or more, got -1");
}

}  // namespace fp8lab::sage_test
