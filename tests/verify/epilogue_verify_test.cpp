#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "catch.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/budget.hpp"
#include "fp8lab/verify/verify.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

std::vector<float> draws(std::size_t count, const char* name) {
  const RandomStream stream(5, name);
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(stream.normal(i)));
  return values;
}

struct Kernel {
  std::vector<float> bias = draws(20, "bias");
  std::vector<float> row = draws(24, "row");
  RandomProduct random;
  Product product;

  Kernel(Activation activation, FormatId output)
      : random({.promotion_interval = 128, .output = default_output(output)}, {}) {
    product = random.product;
    product.epilogue.alpha = 0.01F;
    product.epilogue.bias = bias;
    product.epilogue.activation = activation;
    if (output == FormatId::e4m3fn) product.epilogue.output_scale = 40.0F;
  }

  [[nodiscard]] VerifyReport verify_codes(const std::vector<std::byte>& codes,
                                          const VerifyOptions& options = {}) const {
    const Operand got{
        "got",
        {element_type_of(product.output.format), {product.rows(), product.columns()}, codes},
        nullptr};
    return verify(product, got, options);
  }
  [[nodiscard]] std::string cause_of(const Product& wrong) const {
    return cause_of(golden_output(wrong));
  }
  [[nodiscard]] std::string cause_of(const std::vector<std::byte>& codes) const {
    const VerifyReport report = verify_codes(codes);
    INFO(describe(report));
    CHECK(report.verdict == Verdict::mismatch);
    if (!report.diagnosis || report.diagnosis->causes.empty()) return "none";
    return report.diagnosis->causes.front().name;
  }
};

}  // namespace

TEST_CASE("verify: right outputs of every epilogue pass", "[verify]") {
  for (const FormatId output : {FormatId::f32, FormatId::bf16, FormatId::e4m3fn})
    for (const Activation activation : activations()) {
      const Kernel kernel(activation, output);
      const VerifyReport report = kernel.verify_codes(golden_output(kernel.product));
      INFO(describe(report));
      CHECK(report.comparison.bitwise());
      CHECK(report.within_activation == 0);
      // So few FP8 outputs do not show every accumulator.
      if (output != FormatId::e4m3fn) CHECK(report.verdict == Verdict::pass);
    }
}

TEST_CASE("verify: an activation may be off by its ulps, and no more", "[verify]") {
  for (const Activation activation : {Activation::gelu, Activation::silu, Activation::swiglu}) {
    const Kernel kernel(activation, FormatId::f32);
    const std::vector<float> right = compute(kernel.product);
    const auto moved = [&](int steps) {
      std::vector<float> values = right;
      for (float& x : values)
        x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) +
                                 static_cast<std::uint32_t>(steps));
      return kernel.verify_codes(cast_output(values, {}));
    };
    INFO(to_string(activation));
    const VerifyReport near = moved(2);
    CHECK(near.verdict == Verdict::pass);
    CHECK(near.within_activation == kernel.product.size());
    CHECK(moved(400).verdict == Verdict::mismatch);
  }
  // What has one right answer has no allowance.
  const Kernel exact(Activation::relu, FormatId::f32);
  std::vector<float> values = compute(exact.product);
  for (float& x : values) x = std::nextafter(x, 1e9F);
  CHECK(exact.verify_codes(cast_output(values, {})).verdict == Verdict::mismatch);
}

TEST_CASE("verify: mistakes of epilogues are named", "[verify]") {
  const Kernel gelu(Activation::gelu, FormatId::bf16);
  Product wrong = gelu.product;
  wrong.epilogue.bias = {};
  CHECK(gelu.cause_of(wrong) == "missing_bias");
  wrong = gelu.product;
  wrong.epilogue.alpha = 1.0F;
  CHECK(gelu.cause_of(wrong) == "missing_alpha");
  wrong = gelu.product;
  wrong.epilogue.activation = Activation::gelu_tanh;
  CHECK(gelu.cause_of(wrong) == "activation_gelu_tanh");
  wrong = gelu.product;
  wrong.epilogue.activation = Activation::none;
  CHECK(gelu.cause_of(wrong) == "missing_activation");
  const Kernel quantized(Activation::silu, FormatId::e4m3fn);
  wrong = quantized.product;
  wrong.epilogue.output_scale = 1.0F / 40.0F;
  CHECK(quantized.cause_of(wrong) == "inverted_output_scale");
  const Kernel gated(Activation::swiglu, FormatId::bf16);
  std::vector<float> sums = compute_sums(gated.product);
  sums = decode_codes(FormatId::bf16, cast_output(sums, default_output(FormatId::bf16)));
  CHECK(gated.cause_of(cast_output(finish(gated.product, sums), gated.product.output)) ==
        "bf16_before_epilogue");
  // Mistakes of the sum are seen through the epilogue, too.
  wrong = without_terms(gelu.product, 384, 512);
  CHECK(gelu.cause_of(wrong) == "dropped_last_k_tile");
}

TEST_CASE("verify: splits are named by their order", "[verify]") {
  // Of an instruction whose sums fill binary32: those of 14 bits add up without rounding.
  RandomProduct random({.model = "sm100.mma.e4m3", .promotion_interval = 128},
                       {.shape = {24, 20, 2048}, .data = Data::wide});
  Kernel kernel(Activation::none, FormatId::f32);
  kernel.product = random.product;
  kernel.product.split = {.parts = 8};
  Product wrong = kernel.product;
  wrong.split.order = SplitOrder::tree;
  CHECK(kernel.cause_of(wrong) == "split_order_tree");
  wrong.split = {};
  CHECK(kernel.cause_of(wrong) == "not_split");
  CHECK(kernel.verify_codes(golden_output(kernel.product)).verdict == Verdict::pass);
}

TEST_CASE("budget: it holds behind epilogues and splits", "[verify]") {
  for (const FormatId output : {FormatId::f32, FormatId::bf16, FormatId::e4m3fn})
    for (const Activation activation : activations()) {
      Kernel kernel(activation, output);
      kernel.product.split = {.parts = 2, .cut = SplitCut::modulo};
      kernel.product.epilogue.row_scales = kernel.row;
      const Product& p = kernel.product;
      const std::vector<std::byte> golden = golden_output(p);
      // The FP64 path of the exact sum, written a second time.
      Product exact = with_accumulator(p, find_instruction_model("exact").accumulator);
      const std::vector<float> near = compute(exact);
      INFO(to_string(activation) << " " << format(output).name);
      double widest = 0.0;
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(p.size()); ++i) {
        const ErrorBudget budget = error_budget(p, i / p.columns(), i % p.columns());
        const auto at = static_cast<std::size_t>(i);
        REQUIRE(within(budget, p.output, code_at(output, golden, at)));
        const double off = std::abs(budget.exact - static_cast<double>(near[at]));
        CHECK(off <= 1e-5 * (1.0 + std::abs(budget.exact)));
        widest = std::max(widest, budget.accumulation);
      }
      CHECK(widest < 40.0);  // a bound, not a licence
    }
}

TEST_CASE("verify: what was verified is said with its epilogue", "[verify]") {
  const Kernel kernel(Activation::relu, FormatId::bf16);
  const std::string said = describe(kernel.verify_codes(golden_output(kernel.product)));
  for (const char* part : {", alpha 0.01", "bias", "relu"}) CHECK_THAT(said, contains(part));
  const std::string plain = describe(
      verify(kernel.random.product,
             {"got",
              {element_type_of(FormatId::bf16), {24, 20}, golden_output(kernel.random.product)},
              nullptr}));
  CHECK_THAT(plain, !contains("alpha"));
}
