// Wrong outputs of random products: every registered instruction, with every kind of scale, split,
// epilogue, group and output. A wrong output is a mismatch, whatever the hypotheses about it do.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/grouped.hpp"
#include "fp8lab/verify/verify.hpp"
#include "gemm/problems.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// Draws from one stream, one after the other.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : stream_(seed, "wrong products") {}
  std::uint64_t below(std::uint64_t count) { return stream_.below(at_++, count); }
  bool one_in(std::uint64_t count) { return below(count) == 0; }
  double normal() { return stream_.normal(at_++); }
  template <typename Value, std::size_t N>
  Value of(const Value (&values)[N]) {
    return values[below(N)];
  }

 private:
  RandomStream stream_;
  std::uint64_t at_ = 0;
};

/// Operands of a random product, and the memory they lie in.
class Drawn {
 public:
  explicit Drawn(std::uint64_t seed) : draws_(seed) {
    const auto models = instruction_models();
    model_ = &models[draws_.below(models.size())];
    spec_.model = model_->name;
    m_ = 1 + static_cast<std::int64_t>(draws_.below(9));
    n_ = 2 * (1 + static_cast<std::int64_t>(draws_.below(6)));
    k_ = draws_.of<std::int64_t>({1, 16, 40, 64, 96, 128, 200, 256, 384});
    groups_ = draws_.one_in(3) ? 2 + static_cast<std::int64_t>(draws_.below(2)) : 0;
    codes();
    scales();
    spec_.promotion_interval = draws_.one_in(2)
                                   ? 0
                                   : std::max<std::int64_t>(model_->accumulator.terms, 32) *
                                         draws_.of<std::int64_t>({1, 2, 4});
    spec_.scale_order = scale_orders()[draws_.below(scale_orders().size())];
    if (draws_.one_in(4)) {
      spec_.split = {
          .parts = 2 + static_cast<int>(draws_.below(3)),
          .cut = draws_.of({SplitCut::contiguous, SplitCut::modulo}),
          .order = draws_.of({SplitOrder::serial, SplitOrder::pairwise, SplitOrder::tree})};
    }
    epilogue();
    spec_.output = default_output(draws_.of({FormatId::f32, FormatId::f32, FormatId::bf16,
                                             FormatId::f16, FormatId::e4m3fn, FormatId::e5m2}));
  }

  [[nodiscard]] const GemmOperands& operands() const { return operands_; }
  [[nodiscard]] const GemmSpec& spec() const { return spec_; }
  [[nodiscard]] std::int64_t groups() const { return groups_; }
  [[nodiscard]] std::string text() const {
    return fmt::format("{}, {} x {} x {}, {} groups, promotion {}, split {}, output {}",
                       model_->name, m_, n_, k_, groups_, spec_.promotion_interval,
                       spec_.split.parts, format(spec_.output.format).name);
  }
  Draws& draws() { return draws_; }

 private:
  [[nodiscard]] std::vector<std::int64_t> shape(std::int64_t rows, std::int64_t columns) const {
    if (groups_ > 0) return {groups_, rows, columns};
    return {rows, columns};
  }
  [[nodiscard]] std::int64_t each() const { return std::max<std::int64_t>(groups_, 1); }

  TensorView keep(ElementType type, const std::vector<std::int64_t>& of,
                  std::vector<std::byte> bytes) {
    const auto kept = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
    kept_.push_back(kept);
    return {type, of, *kept, false};
  }
  TensorView floats(const std::vector<std::int64_t>& of, double scale) {
    std::vector<float> values(static_cast<std::size_t>(element_count(of, "shape")));
    for (float& x : values) x = static_cast<float>(scale * draws_.normal());
    const auto bytes = std::as_bytes(std::span(values));
    return keep(ElementType::f32, of, {bytes.begin(), bytes.end()});
  }

  void codes() {
    const Data data = draws_.of({Data::normal, Data::normal, Data::finite, Data::wide, Data::codes,
                                 Data::specials, Data::ties});
    const auto matrix = [&](FormatId id, std::int64_t rows, const char* name) {
      const Format& f = format(id);
      const RandomStream stream(draws_.below(1U << 30), name);
      std::vector<std::byte> bytes;
      for (std::int64_t i = 0; i < each() * rows * k_; ++i) {
        std::uint32_t code = random_code(f, data, stream, static_cast<std::uint64_t>(i));
        if (f.storage_bits == 32) code <<= 23 - f.mantissa_bits;
        for (int bit = 0; bit < f.storage_bits; bit += 8)
          bytes.push_back(static_cast<std::byte>(code >> bit & 255U));
      }
      const ElementType type =
          id == FormatId::tf32 ? ElementType::f32 : element_type_of(id);  // held in binary32
      return keep(type, shape(rows, k_), std::move(bytes));
    };
    operands_.a.codes = matrix(model_->a_format, m_, "a");
    operands_.b.codes = matrix(model_->b_format, n_, "b");
  }

  void scales() {
    const bool inside = traits_of(model_->accumulator).takes_scales;
    if (draws_.one_in(inside ? 8 : 3)) return;
    const std::int64_t k_block =
        inside ? draws_.of<std::int64_t>({32, 16, 128}) : draws_.of<std::int64_t>({0, 32, 128});
    const ElementType type = draws_.one_in(4) ? ElementType::f32
                             : k_block == 16  ? ElementType::e4m3fn
                                              : ElementType::e8m0fnu;
    operands_.a.scales = grid(m_, k_block, type, operands_.a.tiles);
    if (!draws_.one_in(6)) operands_.b.scales = grid(n_, k_block, type, operands_.b.tiles);
    if (draws_.one_in(3)) operands_.a.tensor_scale = 0.37F;
    if (draws_.one_in(3)) operands_.b.tensor_scale = 2.5F;
  }

  TensorView grid(std::int64_t rows, std::int64_t k_block, ElementType type,
                  std::optional<ScaleTiles>& tiles) {
    tiles = ScaleTiles{1, k_block == 0 ? k_ : k_block};
    const std::vector<std::int64_t> of = shape(rows, (k_ + tiles->columns - 1) / tiles->columns);
    if (type == ElementType::f32) return floats(of, 1.0);
    const bool any_code = draws_.one_in(8);
    std::vector<std::byte> bytes;
    for (std::int64_t i = 0; i < element_count(of, "shape"); ++i) {
      const std::uint64_t usual = type == ElementType::e8m0fnu ? 122 : 40;
      bytes.push_back(
          static_cast<std::byte>(any_code ? draws_.below(256) : usual + draws_.below(12)));
    }
    return keep(type, of, std::move(bytes));
  }

  void epilogue() {
    if (draws_.one_in(4)) {
      operands_.c = floats(shape(m_, n_), 4.0);
      spec_.c_enters = draws_.of({CPlacement::unnamed, CPlacement::accumulator,
                                  CPlacement::promoted_sum, CPlacement::epilogue});
    }
    if (!draws_.one_in(3)) return;
    spec_.epilogue.activation = activations()[draws_.below(activations().size())];
    if (draws_.one_in(2)) spec_.epilogue.alpha = 0.75F;
    if (draws_.one_in(2)) spec_.epilogue.output_scale = 0.5F;
    if (draws_.one_in(2)) operands_.bias = floats({n_}, 1.0);
    if (draws_.one_in(3)) operands_.column_scales = floats({n_}, 1.0);
  }

  Draws draws_;
  const InstructionModel* model_ = nullptr;
  std::int64_t m_ = 0, n_ = 0, k_ = 0, groups_ = 0;
  GemmOperands operands_;
  GemmSpec spec_{.model = "sm90.wgmma.e4m3"};
  std::vector<std::shared_ptr<const void>> kept_;
};

/// The right codes made wrong: by bits of codes, by whole values, or by another product.
std::vector<std::byte> made_wrong(Draws& draws, std::vector<std::byte> codes, FormatId id) {
  const auto width = static_cast<std::size_t>(format(id).storage_bits / 8);
  const std::size_t count = codes.size() / width;
  const std::uint32_t sign = format(id).sign_mask();
  const auto set = [&](std::size_t at, std::uint32_t code) {
    std::memcpy(&codes[at * width], &code, width);
  };
  const std::uint64_t kind = draws.below(6);
  const std::size_t first = draws.below(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t right = code_at(id, codes, i);
    const std::uint32_t one = encode(format(id), default_output(id).policy, 1.0F);
    if (kind == 0 && i != first) continue;
    if (kind == 1 && draws.one_in(2)) continue;
    // Far away, so that no activation's ulps and no NaN payload make it right.
    if (kind == 2)
      set(i, right == 0 || right == sign ? one : 0);
    else if (kind == 3)
      set(i, encode(format(id), default_output(id).policy,
                    static_cast<float>(2.0 * decode(format(id), right)) + 1.0F));
    else
      set(i, std::isnan(decode(format(id), right)) ? one : right ^ sign ^ (one / 2));
  }
  return codes;
}

Operand operand(FormatId id, std::vector<std::int64_t> shape, const std::vector<std::byte>& codes) {
  return {"got", {element_type_of(id), std::move(shape), codes, false}, nullptr};
}

/// Whether the codes differ from the right ones as numbers, beyond what activations allow.
bool differs(const std::vector<std::byte>& right, const std::vector<std::byte>& got, FormatId id) {
  const auto width = static_cast<std::size_t>(format(id).storage_bits / 8);
  for (std::size_t i = 0; i < right.size() / width; ++i) {
    const double x = decode(format(id), code_at(id, right, i));
    const double y = decode(format(id), code_at(id, got, i));
    if (std::isnan(x) != std::isnan(y)) return true;
    if (!std::isnan(x) && std::abs(x - y) > 0.25 * (std::abs(x) + 1e-3)) return true;
  }
  return false;
}

/// What `make` returns, or nothing for operands that no such product has.
template <typename Make>
auto made(const Make& make) -> std::optional<decltype(make())> {
  try {
    return make();
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Verifies a wrong output of a product; false if the drawn one is not wrong enough.
template <typename AnyProduct>
bool judged(Drawn& drawn, const AnyProduct& product, const std::vector<std::int64_t>& shape) {
  const FormatId id = drawn.spec().output.format;
  const std::vector<std::byte> right = golden_output(product, 1);
  if (right.empty()) return false;
  const std::vector<std::byte> wrong = made_wrong(drawn.draws(), right, id);
  if (!differs(right, wrong, id)) return false;
  VerifyOptions options;
  options.threads = 1;
  const auto report = verify(product, operand(id, shape, wrong), options);
  // Of a large argument an activation may be off by more than its value.
  const bool allowed = is_transcendental(drawn.spec().epilogue.activation);
  if (allowed && report.verdict != Verdict::mismatch) return false;
  CHECK(report.verdict == Verdict::mismatch);
  CHECK_FALSE(describe(report).empty());
  options.check.kind = Check::Kind::budget;
  CHECK_NOTHROW(verify(product, operand(id, shape, wrong), options));
  return true;
}

/// The same for the product that this seed draws; false if there is none.
bool verify_wrong(std::uint64_t seed) {
  Drawn drawn(seed);
  INFO("product of seed " << seed << ": " << drawn.text());
  if (drawn.groups() == 0) {
    const auto product = made([&] { return make_product(drawn.operands(), drawn.spec()); });
    return product && judged(drawn, *product, {product->rows(), product->columns()});
  }
  const auto product = made([&] {
    return make_grouped_product(drawn.operands(), drawn.spec(), {.kind = GroupKind::batched});
  });
  return product && judged(drawn, *product, product->shape);
}

/// Verifies wrong outputs of so many products, drawn from this seed on.
void verify_wrong_from(std::uint64_t seed, int wanted) {
  int seen = 0;
  for (std::uint64_t next = seed; seen < wanted && next < seed + 100ULL * 10000; ++next)
    seen += verify_wrong(next) ? 1 : 0;
  CHECK(seen == wanted);
}

}  // namespace

TEST_CASE("a wrong output of any product is a mismatch", "[verify]") { verify_wrong_from(0, 150); }

TEST_CASE("wrong outputs of ten thousand products are mismatches", "[verify][slow]") {
  const SweepShare share;
  verify_wrong_from(1000 + (share.draw() << 24U), 10000);
}
