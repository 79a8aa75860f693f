// Broken versions of a kernel in Hopper's style: WGMMA on 128 terms, promoted in FP32 under
// 1 x 128 and 128 x 128 scales, BF16 output.

#include "verify/campaign/campaign.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

const OutputCast kBf16 = default_output(FormatId::bf16);

class Hopper {
 public:
  Hopper() {
    usual_.fill(1);
    odd_.k = 1000;
    odd_.fill(2);
    plain_.scaled = false;
    plain_.fill(3);
    square_.n = square_.m = 256;
    square_.fill(4);
  }

  std::vector<Fault> faults() {
    promotion();
    scale_groups();
    scale_values();
    operands();
    sums_and_casts();
    stores();
    tiles();
    parts();
    hard();
    return std::move(faults_);
  }

  [[nodiscard]] const Tensors& usual() const { return usual_; }

 private:
  using Change = std::function<void(Launch&)>;
  using Overwrite = std::function<void(Stored&)>;

  static VerifyReport verify_stored(const Tensors& t, const OutputCast& output,
                                    const std::vector<std::byte>& codes) {
    const Product product =
        t.product({.model = "sm90.wgmma.e4m3", .promotion_interval = 128, .output = output});
    return verify(product, stored_operand(product, codes));
  }

  /// A launch that goes wrong.
  void launch(const std::string& what, std::vector<std::string> right, const Tensors& t,
              const Change& change, const OutputCast& output = kBf16) {
    faults_.push_back({what, std::move(right), [&t, change, output] {
                         Launch one(t);
                         one.output = output;
                         change(one);
                         return verify_stored(t, output, one.run());
                       }});
  }
  /// A right one whose output is overwritten.
  void overwrite(const std::string& what, std::vector<std::string> right, const Tensors& t,
                 const Overwrite& change) {
    faults_.push_back({what, std::move(right), [&t, change] {
                         Launch one(t);
                         one.output = kBf16;
                         Stored stored{t.m, t.n, 2, one.run()};
                         change(stored);
                         return verify_stored(t, kBf16, stored.bytes);
                       }});
  }

  void promotion() {
    const auto every = [](std::size_t stages) {
      return [=](Launch& l) { l.promotes = [=](std::size_t s) { return (s + 1) % stages == 0; }; };
    };
    launch("promotion every 256, the last scale", {"promotion_256"}, usual_, every(2));
    launch("promotion every 512, without scales, FP32", {"promotion_512"}, plain_, every(4), {});
    launch("promotion every 64", {"promotion_64"}, usual_, [](Launch& l) { l.set_block(64); });
    launch("no promotion", {"no_promotion"}, plain_, every(1000));
    launch("the first promotion missing", {"missing_promotion"}, usual_,
           [](Launch& l) { l.promotes = [](std::size_t s) { return s != 0; }; });
  }

  void scale_groups() {
    launch("A's scales: groups of 64 for 128", {"scale_group_64_a"}, usual_, [this](Launch& l) {
      l.scale_a = [this](std::int64_t row, std::int64_t k) {
        const auto at = static_cast<std::size_t>(row * usual_.blocks() + k / 64);
        return usual_.scale_a[std::min(at, usual_.scale_a.size() - 1)];
      };
    });
    launch("A's scales: groups of 256 for 128", {"scale_group_256_a"}, usual_, [this](Launch& l) {
      l.scale_a = [this](std::int64_t row, std::int64_t k) {
        return usual_.scale_a[static_cast<std::size_t>(row * usual_.blocks() + k / 256)];
      };
    });
    const auto stale = [](auto read) {
      return [read](std::int64_t row, std::int64_t k) {
        return read(row, std::max<std::int64_t>(k - 128, 0));
      };
    };
    launch("A's scale of the stage before", {"stale_scale_a"}, usual_,
           [stale](Launch& l) { l.scale_a = stale(l.scale_a); });
    launch("A's scales column-major", {"wrong_scale_axis_a"}, usual_, [this](Launch& l) {
      l.scale_a = [this](std::int64_t row, std::int64_t k) {
        return usual_.scale_a[static_cast<std::size_t>(k / 128 * usual_.m + row)];
      };
    });
    launch("A's scale of the next row", {"scale_a_of_next_row"}, usual_, [](Launch& l) {
      l.scale_a = [right = l.scale_a, m = l.m](std::int64_t row, std::int64_t k) {
        return right((row + 1) % m, k);
      };
    });
  }

  void scale_values() {
    launch("A's scale inverted", {"inverted_scale_a"}, usual_, [](Launch& l) {
      l.scale_a = [right = l.scale_a](std::int64_t row, std::int64_t k) {
        return 1.0F / right(row, k);
      };
    });
    launch("B's scale missing", {"missing_scale_b"}, usual_,
           [](Launch& l) { l.scale_b = nullptr; });
  }

  void operands() {
    launch("FNUZ codes in B", {"fnuz_b"}, usual_,
           [](Launch& l) { l.format_b = FormatId::e4m3fnuz; });
    launch("E5M2 codes in B", {"e5m2_codes_b"}, usual_,
           [](Launch& l) { l.format_b = FormatId::e5m2; });
    launch("tail of K lost (k = 1000)", {"dropped_last_k_tile", "dropped_k_tail"}, odd_,
           [](Launch& l) { l.stages.pop_back(); });
    launch("A's K pointer off by one", {"k_offset_1_a"}, usual_, [this](Launch& l) {
      l.a = [this](std::int64_t row, std::int64_t k) {
        const auto at = static_cast<std::size_t>(row * usual_.k + k + 1);
        return at < usual_.a.size() ? usual_.a[at] : std::uint8_t{0};
      };
    });
    const auto stage = [](auto read, std::int64_t from) {
      return [=](std::int64_t row, std::int64_t k) {
        return read(row, k / 128 == 5 ? k - 640 + from * 128 : k);
      };
    };
    launch("a K block duplicated: stage 5 holds block 4", {"stale_k_block"}, usual_,
           [=](Launch& l) {
             l.a = stage(l.a, 4);
             l.b = stage(l.b, 4);
           });
    launch("B's stage 5 holds block 1", {"stale_k_block_b"}, usual_,
           [=](Launch& l) { l.b = stage(l.b, 1); });
    launch("K block 3 left out", {"dropped_k_block"}, usual_,
           [](Launch& l) { l.stages.erase(l.stages.begin() + 3); });
    truncated_quantization();
  }

  /// A kernel that quantizes its inputs itself, truncated.
  void truncated_quantization() {
    faults_.push_back(
        {"inputs quantized by truncation", {"truncated_quantization_a_and_b"}, [] {
           std::vector<float> x;
           const RandomStream stream(7, "x");
           for (std::uint64_t i = 0; i < 64 * 512; ++i)
             x.push_back(static_cast<float>(stream.normal(i)));
           GemmOperands operands;
           operands.a.codes = operands.b.codes =
               view_of(ElementType::f32, {64, 512}, std::span<const float>(x));
           operands.recipe = "deepseek-v3";
           const Product right = make_product(
               operands, {.model = "sm90.wgmma.e4m3", .promotion_interval = 128, .output = kBf16});
           return verify_truncated(right, x);
         }});
  }
  static VerifyReport verify_truncated(const Product& right, const std::vector<float>& x) {
    const GemmProblem& p = right.problem;
    CastPolicy toward_zero = kNvidiaSatfinite;
    toward_zero.rounding = RoundingMode::toward_zero;
    const auto codes_of = [&](const InverseScales& scales, std::vector<std::uint8_t>& codes) {
      for (std::int64_t i = 0; i < 64; ++i)
        for (std::int64_t k = 0; k < 512; ++k) {
          const float inverse =
              scales.values[static_cast<std::size_t>(i / scales.row_block * 4 + k / 128)];
          codes.push_back(static_cast<std::uint8_t>(
              encode(format(FormatId::e4m3fn), toward_zero,
                     x[static_cast<std::size_t>(i * 512 + k)] / inverse)));
        }
    };
    std::vector<std::uint8_t> a;
    std::vector<std::uint8_t> b;
    codes_of(p.scale_a, a);
    codes_of(p.scale_b, b);
    Product wrong = right;
    wrong.problem.a = CodeMatrix::row_major(FormatId::e4m3fn, a, 64, 512);
    wrong.problem.b = CodeMatrix::row_major(FormatId::e4m3fn, b, 64, 512);
    return verify(right, stored_operand(right, golden_output(wrong)));
  }

  void sums_and_casts() {
    launch("BF16 accumulator", {"bf16_accumulator"}, usual_,
           [](Launch& l) { l.hold = [](float x) { return rounded_to(FormatId::bf16, x); }; });
    launch("an accumulator that is too good: FP16 halves", {"accumulator_sm90.mma.e4m3"}, plain_,
           [](Launch& l) { l.model = "sm90.mma.e4m3"; });
    faults_.push_back({"BF16 output through FP16", {"double_rounding_f16"}, [this] {
                         std::vector<float> sums = Launch(plain_).sums();
                         for (float& x : sums) x = rounded_to(FormatId::f16, x);
                         return verify_stored(plain_, kBf16, cast_output(sums, kBf16));
                       }});
    faults_.push_back({"BF16 output truncated", {"rtz_cast"}, [this] {
                         OutputCast cast = kBf16;
                         cast.policy.rounding = RoundingMode::toward_zero;
                         Launch one(usual_);
                         one.output = cast;
                         return verify_stored(usual_, kBf16, one.run());
                       }});
  }

  void stores() {
    overwrite("one element off by an ulp", {"one_ulp"}, usual_,
              [](Stored& d) { d.set(77, 131, d.get(77, 131) ^ 1); });
    overwrite("rows shifted by one", {"rows_shifted_1"}, usual_, [](Stored& d) {
      const Stored right = d;
      d.fill(1, d.rows - 1, 0, d.columns,
             [&](std::int64_t i, std::int64_t j) { return right.get(i, j); });
    });
    overwrite("output stored transposed", {"transposed_output"}, square_, [](Stored& d) {
      const Stored right = d;
      d.fill(0, d.rows, 0, d.columns,
             [&](std::int64_t i, std::int64_t j) { return right.get(j, i); });
    });
    overwrite("one tile stored transposed", {"transposed"}, usual_, [](Stored& d) {
      const Stored right = d;
      d.fill(64, 64, 128, 64,
             [&](std::int64_t i, std::int64_t j) { return right.get(64 + j, 128 + i); });
    });
  }

  void tiles() {
    const auto tile = [](auto code) { return [=](Stored& d) { d.fill(64, 64, 128, 128, code); }; };
    overwrite("a tile of zeros", {"zeros"}, usual_, tile([](auto, auto) { return 0u; }));
    overwrite("a tile of NaN", {"nan"}, usual_, tile([](auto, auto) { return 0x7fffu; }));
    overwrite("a tile never written: one pattern", {"constant"}, usual_,
              tile([](auto, auto) { return 0xcdcdu; }));
    overwrite("a tile of garbage", {"unrelated"}, usual_, tile([](auto i, auto j) {
                return RandomStream(5, "garbage").bits32(static_cast<std::uint64_t>(i * 128 + j)) &
                       0xffffu;
              }));
    overwrite("a stale tile, of an older product", {"unrelated"}, usual_, [](Stored& d) {
      Tensors older;
      older.fill(99);
      Launch one(older);
      one.output = kBf16;
      const Stored old{older.m, older.n, 2, one.run()};
      d.fill(64, 64, 128, 128,
             [&](std::int64_t i, std::int64_t j) { return old.get(64 + i, 128 + j); });
    });
    overwrite("a tile that is a copy of another", {"elsewhere"}, usual_, [](Stored& d) {
      const Stored right = d;
      d.fill(64, 64, 128, 128, [&](std::int64_t i, std::int64_t j) { return right.get(i, j); });
    });
  }

  /// What another launch stores, in a part of the output.
  void part(const std::string& what, std::vector<std::string> right, std::int64_t row,
            std::int64_t rows, std::int64_t column, std::int64_t columns, const Change& change) {
    overwrite(what, std::move(right), usual_, [=, this](Stored& d) {
      Launch wrong(usual_);
      wrong.output = kBf16;
      change(wrong);
      const Stored other{d.rows, d.columns, 2, wrong.run()};
      d.fill(row, rows, column, columns,
             [&](std::int64_t i, std::int64_t j) { return other.get(row + i, column + j); });
    });
  }

  void parts() {
    part("half of a tile races past half of K", {"dropped_last_half_of_k"}, 0, 64, 128, 128,
         [](Launch& l) { l.stages.resize(4); });
    part("B's scale missing on half of N", {"missing_scale_b"}, 0, 192, 128, 128,
         [](Launch& l) { l.scale_b = nullptr; });
  }

  /// What no known cause explains.
  void hard() {
    launch("two mistakes: stale A scale, FNUZ codes in B", {}, usual_, [](Launch& l) {
      l.scale_a = [right = l.scale_a](std::int64_t row, std::int64_t k) {
        return right(row, std::max<std::int64_t>(k - 128, 0));
      };
      l.format_b = FormatId::e4m3fnuz;
    });
    overwrite("one element of 50 stale, at random", {}, usual_, [](Stored& d) {
      const RandomStream stream(6, "stale");
      for (std::int64_t i = 0; i < d.rows * d.columns; ++i)
        if (stream.bits32(static_cast<std::uint64_t>(i)) % 50 == 0)
          d.set(i / d.columns, i % d.columns, d.get(0, i % d.columns));
    });
  }

  Tensors usual_, odd_, plain_, square_;
  std::vector<Fault> faults_;
};

}  // namespace

TEST_CASE("campaign: a right kernel in Hopper's style has the golden bits", "[verify][campaign]") {
  const Hopper hopper;
  Launch one(hopper.usual());
  one.output = kBf16;
  const Product product = hopper.usual().product(
      {.model = "sm90.wgmma.e4m3", .promotion_interval = 128, .output = kBf16});
  CHECK(verify(product, stored_operand(product, one.run())).verdict == Verdict::pass);
}

TEST_CASE("campaign: broken versions of a kernel in Hopper's style", "[verify][campaign][long]") {
  Hopper hopper;
  const std::vector<Fault> faults = hopper.faults();
  REQUIRE(faults.size() == 38);
  run_campaign("Hopper style, 38 faults", faults, 36);
}
