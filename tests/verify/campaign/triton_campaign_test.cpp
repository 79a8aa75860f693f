// Broken versions of a block-scaled kernel in Triton's style: acc += dot(a, b) * a_s * b_s.

#include "verify/campaign/campaign.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

class Triton {
 public:
  Triton() {
    usual_.fill(11);
    odd_.k = 1000;
    odd_.fill(12);
    square_.n = square_.m = 256;
    square_.fill(13);
  }

  std::vector<Fault> faults() {
    loops();
    scales();
    operands();
    sums();
    stores();
    return std::move(faults_);
  }
  [[nodiscard]] const Tensors& usual() const { return usual_; }

  static Launch right_launch(const Tensors& t) {
    Launch one(t);
    one.add = [](float partial, float sa, float sb, float sum) {
      const float scaled = partial * sa * sb;
      return sum + scaled;
    };
    one.output = default_output(FormatId::f16);
    return one;
  }
  static Product product_of(const Tensors& t, FormatId output) {
    return t.product({.model = "sm90.wgmma.e4m3",
                      .promotion_interval = 128,
                      .scale_order = ScaleOrder::a_then_b_then_add,
                      .output = default_output(output)});
  }

 private:
  using Change = std::function<void(Launch&)>;

  void launch(const std::string& what, std::vector<std::string> right, const Tensors& t,
              const Change& change) {
    faults_.push_back({what, std::move(right), [&t, change] {
                         Launch one = right_launch(t);
                         change(one);
                         const Product product = product_of(t, FormatId::f16);
                         return verify(product, stored_operand(product, one.run()));
                       }});
  }
  void overwrite(const std::string& what, std::vector<std::string> right, const Tensors& t,
                 const std::function<void(Stored&)>& change) {
    faults_.push_back({what, std::move(right), [&t, change] {
                         Stored stored{t.m, t.n, 2, right_launch(t).run()};
                         change(stored);
                         const Product product = product_of(t, FormatId::f16);
                         return verify(product, stored_operand(product, stored.bytes));
                       }});
  }

  void loops() {
    launch("tail of K masked away (k = 1000)", {"dropped_last_k_tile", "dropped_k_tail"}, odd_,
           [](Launch& l) { l.stages.pop_back(); });
    launch("one iteration too few", {"dropped_last_k_tile"}, usual_,
           [](Launch& l) { l.stages.pop_back(); });
    launch("one iteration runs twice", {"doubled_k_block"}, usual_,
           [](Launch& l) { l.stages.insert(l.stages.begin() + 2, 2); });
    launch("A's stage 4 holds block 2 (two stages)", {"stale_k_block_a"}, usual_, [](Launch& l) {
      l.a = [right = l.a](std::int64_t row, std::int64_t k) {
        return right(row, k / 128 == 4 ? k - 256 : k);
      };
    });
  }

  void scales() {
    launch("A's scale missing", {"missing_scale_a"}, usual_,
           [](Launch& l) { l.scale_a = nullptr; });
    launch("A's scale pointer not advanced", {"first_scale_a"}, usual_, [](Launch& l) {
      l.scale_a = [right = l.scale_a](std::int64_t row, std::int64_t) { return right(row, 0); };
    });
    launch("B's scale pointer advanced twice as fast", {"scale_group_64_b"}, usual_,
           [this](Launch& l) {
             l.scale_b = [this](std::int64_t row, std::int64_t k) {
               const auto at = static_cast<std::size_t>(row / 128 * usual_.blocks() + k / 64);
               return usual_.scale_b[std::min(at, usual_.scale_b.size() - 1)];
             };
           });
    launch("B's scale row offs_n // 64", {"scale_row_group_64_b"}, usual_, [](Launch& l) {
      l.scale_b = [right = l.scale_b](std::int64_t row, std::int64_t k) {
        return right(std::min<std::int64_t>(row / 64, 1) * 128, k);
      };
    });
    launch("scales loaded as BF16", {"bf16_scale_a_and_b"}, usual_, [](Launch& l) {
      const auto rounded = [](auto read) {
        return [read](std::int64_t row, std::int64_t k) {
          return rounded_to(FormatId::bf16, read(row, k));
        };
      };
      l.scale_a = rounded(l.scale_a);
      l.scale_b = rounded(l.scale_b);
    });
    launch("scales fused: fma(dot * a_s, b_s, acc)", {"scale_order_a_then_fma_b"}, usual_,
           [](Launch& l) {
             l.add = [](float partial, float sa, float sb, float sum) {
               return std::fma(partial * sa, sb, sum);
             };
           });
  }

  void operands() {
    launch("B's strides exchanged", {"transposed_b"}, usual_, [this](Launch& l) {
      l.b = [this](std::int64_t row, std::int64_t k) {
        return usual_.b[static_cast<std::size_t>(k * usual_.n + row)];
      };
    });
    launch("float8e4b8 for float8e4nv", {"fnuz_inputs"}, usual_,
           [](Launch& l) { l.format_a = l.format_b = FormatId::e4m3fnuz; });
    launch("B as float8e5", {"e5m2_codes_b"}, usual_,
           [](Launch& l) { l.format_b = FormatId::e5m2; });
  }

  void sums() {
    for (const auto& [id, name] : {std::pair{FormatId::bf16, "bf16_accumulator"},
                                   std::pair{FormatId::f16, "f16_accumulator"}})
      launch(fmt::format("acc is {}", format(id).name), {name}, usual_,
             [id = id](Launch& l) { l.hold = [id](float x) { return rounded_to(id, x); }; });
    faults_.push_back({"FP32 output through BF16", {"double_rounding_bf16"}, [this] {
                         std::vector<float> sums = right_launch(usual_).sums();
                         for (float& x : sums) x = rounded_to(FormatId::bf16, x);
                         const Product product = product_of(usual_, FormatId::f32);
                         return verify(product, stored_operand(product, cast_output(sums, {})));
                       }});
    faults_.push_back({"acc starts from 1", {"number_added"}, [this] {
                         std::vector<float> sums = right_launch(usual_).sums();
                         for (float& x : sums) x += 1.0F;
                         const Product product = product_of(usual_, FormatId::f16);
                         return verify(product,
                                       stored_operand(product, cast_output(sums, product.output)));
                       }});
  }

  void stores() {
    overwrite("ReLU fused by mistake", {"relu"}, usual_, [](Stored& d) {
      d.fill(0, d.rows, 0, d.columns, [&](std::int64_t i, std::int64_t j) {
        const std::uint32_t code = d.get(i, j);
        return (code & 0x8000u) != 0 ? 0u : code;
      });
    });
    overwrite("last columns masked away", {"zeros"}, usual_, [](Stored& d) {
      d.fill(0, d.rows, d.columns - 64, 64, [](auto, auto) { return 0u; });
    });
    overwrite("program ids exchanged: tile (i, j) at (j, i)", {"tiles_64x64_exchanged"}, square_,
              [](Stored& d) {
                const Stored right = d;
                d.fill(0, d.rows, 0, d.columns, [&](std::int64_t i, std::int64_t j) {
                  return right.get(j / 64 * 64 + i % 64, i / 64 * 64 + j % 64);
                });
              });
    faults_.push_back({"split K: a tile lost its first half", {"dropped_first_half_of_k"}, [this] {
                         Stored stored{usual_.m, usual_.n, 2, right_launch(usual_).run()};
                         Launch wrong = right_launch(usual_);
                         wrong.stages.erase(wrong.stages.begin(), wrong.stages.begin() + 4);
                         const Stored other{usual_.m, usual_.n, 2, wrong.run()};
                         stored.fill(64, 64, 64, 64, [&](std::int64_t i, std::int64_t j) {
                           return other.get(64 + i, 64 + j);
                         });
                         const Product product = product_of(usual_, FormatId::f16);
                         return verify(product, stored_operand(product, stored.bytes));
                       }});
  }

  Tensors usual_, odd_, square_;
  std::vector<Fault> faults_;
};

}  // namespace

TEST_CASE("campaign: a right kernel in Triton's style has the golden bits", "[verify][campaign]") {
  const Triton triton;
  const Product product = Triton::product_of(triton.usual(), FormatId::f16);
  const std::vector<std::byte> stored = Triton::right_launch(triton.usual()).run();
  CHECK(verify(product, stored_operand(product, stored)).verdict == Verdict::pass);
}

TEST_CASE("campaign: broken versions of a kernel in Triton's style", "[verify][campaign][long]") {
  Triton triton;
  const std::vector<Fault> faults = triton.faults();
  REQUIRE(faults.size() == 21);
  run_campaign("Triton style, 21 faults", faults, 21);
}
