// Broken versions of a kernel in Blackwell's style: one chain of a block-scaled instruction over
// all K, on MXFP8, MXFP4 and NVFP4 operands whose scales lie in memory as bytes.

#include <limits>

#include "verify/campaign/campaign.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// Operands in memory: one code a byte, and the bytes of their scales.
struct BlockTensors {
  FormatId codes = FormatId::e4m3fn;
  FormatId scale_format = FormatId::e8m0fnu;
  std::string model = "sm100.tcgen05.mxf8f6f4.e4m3";
  std::int64_t block = 32;
  std::int64_t m = 160;
  std::int64_t n = 192;
  std::int64_t k = 512;
  std::vector<std::uint8_t> a{}, b{}, scale_a{}, scale_b{};
  float tensor_a = 1.0F;
  float tensor_b = 1.0F;

  [[nodiscard]] std::int64_t blocks() const { return (k + block - 1) / block; }

  void fill(std::uint64_t seed) {
    const Format& f = format(codes);
    const auto fill_codes = [&](std::vector<std::uint8_t>& to, std::int64_t count,
                                const char* name) {
      const RandomStream stream(seed, name);
      const double spread = codes == FormatId::e2m1 ? 2.5 : 20.0;
      for (std::int64_t i = 0; i < count; ++i)
        to.push_back(static_cast<std::uint8_t>(
            encode(f, kNvidiaSatfinite,
                   static_cast<float>(spread * stream.normal(static_cast<std::uint64_t>(i))))));
    };
    const auto fill_scales = [&](std::vector<std::uint8_t>& to, std::int64_t count,
                                 const char* name) {
      const RandomStream stream(seed, name);
      const bool e8m0 = scale_format == FormatId::e8m0fnu;
      for (std::int64_t i = 0; i < count; ++i)
        to.push_back(static_cast<std::uint8_t>(
            (e8m0 ? 118 : 24) + stream.below(static_cast<std::uint64_t>(i), e8m0 ? 7 : 40)));
    };
    fill_codes(a, m * k, "a");
    fill_codes(b, n * k, "b");
    fill_scales(scale_a, m * blocks(), "scale_a");
    fill_scales(scale_b, n * blocks(), "scale_b");
  }

  [[nodiscard]] GemmOperands operands() const {
    GemmOperands o;
    o.a.codes = view_of(element_type_of(codes), {m, k}, std::span(a));
    o.b.codes = view_of(element_type_of(codes), {n, k}, std::span(b));
    o.a.scales = view_of(element_type_of(scale_format), {m, blocks()}, std::span(scale_a));
    o.b.scales = view_of(element_type_of(scale_format), {n, blocks()}, std::span(scale_b));
    o.a.tiles = o.b.tiles = ScaleTiles{1, block};
    o.a.tensor_scale = tensor_a;
    o.b.tensor_scale = tensor_b;
    return o;
  }
  [[nodiscard]] Product product(const OutputCast& output) const {
    return make_product(operands(), {.model = model, .output = output});
  }
};

/// What a byte means as a scale; the kernel's own reading of both formats.
float e8m0_value(std::uint8_t byte) {
  if (byte == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0F, byte - 127);
}
float ue4m3_value(std::uint8_t byte) {
  const int exponent = byte >> 3 & 15;
  const int fraction = byte & 7;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return std::ldexp(static_cast<float>(fraction), -9);
  return std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
}

/// One launch. Every read may be replaced; `block` is the number of terms of a scale.
class BlockLaunch {
 public:
  using Codes = std::function<std::uint8_t(std::int64_t row, std::int64_t k)>;
  using Bytes = std::function<std::uint8_t(std::int64_t row, std::int64_t block)>;
  using Scale = std::function<float(std::uint8_t byte)>;
  using Value = std::function<float(std::uint8_t code)>;

  explicit BlockLaunch(const BlockTensors& t)
      : a([&t](std::int64_t row, std::int64_t k) { return at(t.a, row * t.k + k); }),
        b([&t](std::int64_t row, std::int64_t k) { return at(t.b, row * t.k + k); }),
        bytes_a(
            [&t](std::int64_t row, std::int64_t i) { return at(t.scale_a, row * t.blocks() + i); }),
        bytes_b(
            [&t](std::int64_t row, std::int64_t i) { return at(t.scale_b, row * t.blocks() + i); }),
        read_a(t.scale_format == FormatId::e8m0fnu ? e8m0_value : ue4m3_value),
        read_b(read_a),
        tensor_a(t.tensor_a),
        tensor_b(t.tensor_b),
        block(t.block),
        t_(t) {
    for (std::int64_t i = 0; i < t.k; ++i) terms.push_back(i);
  }

  static std::uint8_t at(const std::vector<std::uint8_t>& memory, std::int64_t place) {
    const std::int64_t last = std::ssize(memory) - 1;
    return memory[static_cast<std::size_t>(std::clamp<std::int64_t>(place, 0, last))];
  }

  Codes a, b;
  Bytes bytes_a, bytes_b;
  Scale read_a, read_b;
  float tensor_a, tensor_b;
  std::int64_t block;
  std::vector<std::int64_t> terms{};  ///< of K, in the order of the loop
  std::int64_t scales_of_term(std::int64_t k) const { return k / block; }
  bool software = false;       ///< FP32 arithmetic in place of the instruction
  Value value_a{}, value_b{};  ///< of codes, in software

  [[nodiscard]] std::vector<float> sums() const { return software ? in_software() : chain(); }

 private:
  /// The instruction on what was read.
  [[nodiscard]] std::vector<float> chain() const {
    const auto k = std::ssize(terms);
    const std::int64_t blocks = (k + block - 1) / block;
    const auto codes = [&](std::int64_t rows, const Codes& read) {
      std::vector<std::uint8_t> result;
      for (std::int64_t row = 0; row < rows; ++row)
        for (const std::int64_t term : terms) result.push_back(read(row, term));
      return result;
    };
    const auto scales = [&](std::int64_t rows, const Bytes& bytes, const Scale& read) {
      std::vector<float> result;
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t i = 0; i < blocks; ++i)
          result.push_back(
              read(bytes(row, scales_of_term(terms[static_cast<std::size_t>(i * block)]))));
      return result;
    };
    const auto x = codes(t_.m, a), y = codes(t_.n, b);
    const auto sx = scales(t_.m, bytes_a, read_a), sy = scales(t_.n, bytes_b, read_b);
    GemmProblem problem;
    problem.model = find_instruction_model(t_.model).accumulator;
    problem.a = CodeMatrix::row_major(t_.codes, x, t_.m, k);
    problem.b = CodeMatrix::row_major(t_.codes, y, t_.n, k);
    problem.scale_a = {sx, 1, block, t_.scale_format, tensor_a};
    problem.scale_b = {sy, 1, block, t_.scale_format, tensor_b};
    std::vector<float> d(static_cast<std::size_t>(t_.m * t_.n));
    gemm(problem, d);
    return d;
  }

  /// Blocks summed in FP32 and scaled: what a kernel without the instruction does.
  [[nodiscard]] std::vector<float> in_software() const {
    const auto values = [&](std::int64_t rows, const Codes& read, const Value& value) {
      std::vector<float> result;
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t k = 0; k < t_.k; ++k) {
          const std::uint8_t code = read(row, k);
          result.push_back(value ? value(code)
                                 : static_cast<float>(decode(format(t_.codes), code)));
        }
      return result;
    };
    const auto x = values(t_.m, a, value_a), y = values(t_.n, b, value_b);
    std::vector<float> d;
    for (std::int64_t i = 0; i < t_.m; ++i)
      for (std::int64_t j = 0; j < t_.n; ++j) {
        float total = 0.0F;
        for (std::int64_t begin = 0; begin < t_.k; begin += block) {
          float sum = 0.0F;
          for (std::int64_t k = begin; k < std::min(begin + block, t_.k); ++k)
            sum = std::fma(x[static_cast<std::size_t>(i * t_.k + k)],
                           y[static_cast<std::size_t>(j * t_.k + k)], sum);
          total = std::fma(read_a(bytes_a(i, begin / block)) * read_b(bytes_b(j, begin / block)),
                           sum, total);
        }
        d.push_back(total * (tensor_a * tensor_b));
      }
    return d;
  }

  const BlockTensors& t_;
};

class BlockScaled {
 public:
  BlockScaled() {
    mxfp8_.fill(11);
    mxfp4_.codes = nvfp4_.codes = FormatId::e2m1;
    mxfp4_.model = nvfp4_.model = "sm100.tcgen05.mxf4nvf4";
    mxfp4_.fill(12);
    nvfp4_.scale_format = FormatId::e4m3fn;
    nvfp4_.block = 16;
    nvfp4_.tensor_a = 0.013F;
    nvfp4_.tensor_b = 0.37F;
    nvfp4_.fill(13);
    tail_ = mxfp8_;
    tail_.k = 496;
    tail_.a.clear(), tail_.b.clear(), tail_.scale_a.clear(), tail_.scale_b.clear();
    tail_.fill(14);
    rare_ = mxfp8_;
    for (std::size_t i = 3; i < rare_.scale_a.size(); i += 37) rare_.scale_a[i] = 0;
    for (std::size_t i = 5; i < rare_.scale_b.size(); i += 200) rare_.scale_b[i] = 255;
    large_ = mxfp8_;
    for (std::size_t i = 0; i < large_.scale_a.size(); ++i)
      large_.scale_a[i] = static_cast<std::uint8_t>(i % 3);
    for (std::uint8_t& scale : large_.scale_b) scale = static_cast<std::uint8_t>(scale + 100);
    signed_ = nvfp4_;
    for (std::size_t i = 3; i < signed_.scale_b.size(); i += 7) signed_.scale_b[i] |= 128;
  }

  std::vector<Fault> faults() {
    for (const auto& [t, name] : {std::pair<const BlockTensors*, std::string>{&mxfp8_, "MXFP8"},
                                  {&mxfp4_, "MXFP4"},
                                  {&nvfp4_, "NVFP4"}}) {
      scale_values(*t, name + ": ");
      scale_places(*t, name + ": ");
      terms(*t, name + ": ");
    }
    bytes();
    codes();
    tensor_scales();
    tails();
    stores();
    return std::move(faults_);
  }

  [[nodiscard]] std::vector<const BlockTensors*> usual() const {
    return {&mxfp8_, &mxfp4_, &nvfp4_, &tail_, &rare_, &large_, &signed_};
  }

 private:
  using Names = std::vector<std::string>;
  using Change = std::function<void(BlockLaunch&)>;

  static VerifyReport verify_stored(const BlockTensors& t, const OutputCast& output,
                                    const std::vector<std::byte>& codes) {
    const Product product = t.product(output);
    return verify(product, stored_operand(product, codes));
  }
  void launch(const std::string& what, Names right, const BlockTensors& t, const Change& change,
              const OutputCast& output = {}) {
    faults_.push_back({what, std::move(right), [&t, change, output] {
                         BlockLaunch one(t);
                         change(one);
                         return verify_stored(t, output, cast_output(one.sums(), output));
                       }});
  }

  void scale_values(const BlockTensors& t, const std::string& name) {
    const bool e8m0 = t.scale_format == FormatId::e8m0fnu;
    const std::uint8_t binade = e8m0 ? 1 : 8;
    const std::uint8_t one = e8m0 ? 127 : 56;
    launch(name + "A's scale missing", {"missing_scale_a"}, t,
           [=](BlockLaunch& l) { l.bytes_a = [=](auto, auto) { return one; }; });
    launch(
        name + "both scales missing, BF16", {"missing_scale_a_and_b"}, t,
        [=](BlockLaunch& l) { l.bytes_a = l.bytes_b = [=](auto, auto) { return one; }; },
        default_output(FormatId::bf16));
    launch(name + "A's scale one binade low", {"scale_a_one_exponent_low", "halved_output"}, t,
           [=](BlockLaunch& l) {
             l.bytes_a = [=, right = l.bytes_a](std::int64_t row, std::int64_t i) {
               return static_cast<std::uint8_t>(right(row, i) - binade);
             };
           });
    launch(name + "both scales one binade low", {"scale_a_and_b_one_exponent_low"}, t,
           [=](BlockLaunch& l) {
             for (BlockLaunch::Bytes* bytes : {&l.bytes_a, &l.bytes_b})
               *bytes = [=, right = *bytes](std::int64_t row, std::int64_t i) {
                 return static_cast<std::uint8_t>(right(row, i) - binade);
               };
           });
    launch(name + "B's scale squared", {"doubled_scale_b"}, t, [=](BlockLaunch& l) {
      l.software = true;
      l.read_b = [right = l.read_b](std::uint8_t byte) { return right(byte) * right(byte); };
    });
    launch(name + "A's scale inverted", {"inverted_scale_a"}, t, [=](BlockLaunch& l) {
      l.software = true;
      l.read_a = [right = l.read_a](std::uint8_t byte) { return 1.0F / right(byte); };
    });
    launch(name + "the byte of B's scale as a number",
           {e8m0 ? "e8m0_byte_as_number_b" : "ue4m3_byte_as_number_b"}, t, [=](BlockLaunch& l) {
             l.software = true;
             l.read_b = [](std::uint8_t byte) { return static_cast<float>(byte); };
           });
    launch(name + "A's scale bytes under the other format",
           {e8m0 ? "e8m0_read_as_ue4m3_a" : "ue4m3_read_as_e8m0_a"}, t, [=](BlockLaunch& l) {
             l.software = true;
             l.read_a = e8m0 ? ue4m3_value : e8m0_value;
           });
  }

  void scale_places(const BlockTensors& t, const std::string& name) {
    const std::int64_t blocks = t.blocks();
    const auto from_memory = [&t](const auto& position) {
      return [&t, position](std::int64_t row, std::int64_t i) {
        return BlockLaunch::at(t.scale_b, position(row, i));
      };
    };
    launch(name + "A's scale of the block before", {"stale_scale_a"}, t, [](BlockLaunch& l) {
      l.bytes_a = [right = l.bytes_a](std::int64_t row, std::int64_t i) {
        return right(row, std::max<std::int64_t>(i - 1, 0));
      };
    });
    launch(name + "B's scale of the next row", {"scale_b_of_next_row"}, t, [&t](BlockLaunch& l) {
      l.bytes_b = [right = l.bytes_b, &t](std::int64_t row, std::int64_t i) {
        return right((row + 1) % t.n, i);
      };
    });
    launch(name + "A's scale of row r xor 8", {"scale_rows_xor_8_a"}, t, [](BlockLaunch& l) {
      l.bytes_a = [right = l.bytes_a](std::int64_t row, std::int64_t i) {
        return right(row ^ 8, i);
      };
    });
    launch(name + "B's linear scales read as 128x4", {"linear_scale_read_as_128x4_b"}, t,
           [=](BlockLaunch& l) {
             l.bytes_b = from_memory([=](std::int64_t row, std::int64_t i) {
               return (row / 128 * ((blocks + 3) / 4) + i / 4) * 512 + row % 32 * 16 +
                      row / 32 % 4 * 4 + i % 4;
             });
           });
    launch(name + "B's scales transposed", {"wrong_scale_axis_b"}, t, [=, &t](BlockLaunch& l) {
      l.bytes_b = from_memory([=, &t](std::int64_t row, std::int64_t i) { return i * t.n + row; });
    });
    launch(name + "both operands' scales exchanged", {"swapped_scales"}, t, [&t](BlockLaunch& l) {
      std::swap(l.bytes_a, l.bytes_b);
      l.bytes_b = [of_a = l.bytes_b, &t](std::int64_t row, std::int64_t i) {
        return of_a(row % t.m, i);
      };
    });
    launch(name + "the last block's scale of A not applied", {"missing_last_scale_a"}, t,
           [&t, blocks](BlockLaunch& l) {
             const std::uint8_t one = t.scale_format == FormatId::e8m0fnu ? 127 : 56;
             l.bytes_a = [=, right = l.bytes_a](std::int64_t row, std::int64_t i) {
               return i == blocks - 1 ? one : right(row, i);
             };
           });
    launch(name + "B's scales: two blocks share the first one's",
           {fmt::format("scale_group_{}_b", 2 * t.block)}, t, [](BlockLaunch& l) {
             l.bytes_b = [right = l.bytes_b](std::int64_t row, std::int64_t i) {
               return right(row, i / 2 * 2);
             };
           });
    launch(name + "A's scales: a block of half as many terms",
           {fmt::format("scale_group_{}_a", t.block / 2)}, t, [&t, blocks](BlockLaunch& l) {
             l.software = true;
             l.block = t.block / 2;
             l.bytes_a = [&t, blocks](std::int64_t row, std::int64_t i) {
               return BlockLaunch::at(t.scale_a, row * blocks + i);
             };
             l.bytes_b = [right = l.bytes_b](std::int64_t row, std::int64_t i) {
               return right(row, i / 2);
             };
           });
  }

  void terms(const BlockTensors& t, const std::string& name) {
    const auto without = [](std::int64_t begin, std::int64_t end) {
      return [=](BlockLaunch& l) {
        std::erase_if(l.terms, [=](std::int64_t k) { return k >= begin && k < end; });
      };
    };
    launch(name + "terms [128, 256) left out", {"dropped_k_block"}, t, without(128, 256));
    launch(name + "the last 128 terms left out", {"dropped_last_k_tile"}, t,
           without(t.k - 128, t.k));
    launch(name + "B's stage of [256, 384) stale", {"stale_k_block_b"}, t, [](BlockLaunch& l) {
      l.b = [right = l.b](std::int64_t row, std::int64_t k) {
        return right(row, k / 128 == 2 ? k - 128 : k);
      };
    });
  }

  void bytes() {
    launch("MXFP8: E8M0 code 0 read as 0", {"e8m0_code_0_as_zero_a"}, large_, [](BlockLaunch& l) {
      l.software = true;
      l.read_a = [](std::uint8_t byte) { return byte == 0 ? 0.0F : e8m0_value(byte); };
    });
    launch("MXFP8: E8M0 code 255 read as infinity", {"e8m0_code_255_as_infinity_b"}, rare_,
           [](BlockLaunch& l) {
             l.software = true;
             l.read_b = [](std::uint8_t byte) {
               return byte == 255 ? std::numeric_limits<float>::infinity() : e8m0_value(byte);
             };
           });
    launch("NVFP4: UE4M3's sign bit used", {"ue4m3_sign_used_b"}, signed_, [](BlockLaunch& l) {
      l.software = true;
      l.read_b = [](std::uint8_t byte) {
        return (byte & 128) != 0 ? -ue4m3_value(byte) : ue4m3_value(byte);
      };
    });
  }

  void codes() {
    // Pairs of terms lie in one block, so that both exchanges give the same sums.
    const auto nibbles = [](BlockLaunch::Codes& codes) {
      codes = [right = codes](std::int64_t row, std::int64_t k) { return right(row, k ^ 1); };
    };
    launch("MXFP4: A's nibbles exchanged", {"exchanged_nibbles_a", "exchanged_nibbles_b"}, mxfp4_,
           [=](BlockLaunch& l) { nibbles(l.a); });
    launch(
        "NVFP4: B's nibbles exchanged, BF16", {"exchanged_nibbles_a", "exchanged_nibbles_b"},
        nvfp4_, [=](BlockLaunch& l) { nibbles(l.b); }, default_output(FormatId::bf16));
    launch("NVFP4: B's codes read as INT4", {"int4_codes_b"}, nvfp4_, [](BlockLaunch& l) {
      l.software = true;
      l.value_b = [](std::uint8_t code) { return static_cast<float>(code < 8 ? code : code - 16); };
    });
    launch("MXFP4: A's codes read as E3M0", {"e3m0_codes_a"}, mxfp4_, [](BlockLaunch& l) {
      l.software = true;
      l.value_a = [](std::uint8_t code) {
        const float x = (code & 7) == 0 ? 0.0F : std::ldexp(1.0F, (code & 7) - 3);
        return code < 8 ? x : -x;
      };
    });
    launch("MXFP8: B's codes are E5M2", {"e5m2_codes_b"}, mxfp8_, [](BlockLaunch& l) {
      l.software = true;
      l.value_b = [](std::uint8_t code) {
        return static_cast<float>(decode(format(FormatId::e5m2), code));
      };
    });
    launch("MXFP8: A's subnormals read as normals", {"subnormals_as_normals_a"}, mxfp8_,
           [](BlockLaunch& l) {
             l.software = true;
             l.value_a = [](std::uint8_t code) {
               const float x =
                   (code & 127) < 8 && (code & 127) > 0
                       ? std::ldexp(static_cast<float>(8 + (code & 7)), -10)
                       : std::abs(static_cast<float>(decode(format(FormatId::e4m3fn), code)));
               return code < 128 ? x : -x;
             };
           });
  }

  void tensor_scales() {
    launch("NVFP4: A's tensor scale missing", {"missing_tensor_scale_a"}, nvfp4_,
           [](BlockLaunch& l) { l.tensor_a = 1.0F; });
    launch("NVFP4: B's tensor scale inverted", {"inverted_tensor_scale_b"}, nvfp4_,
           [](BlockLaunch& l) { l.tensor_b = 1.0F / l.tensor_b; });
    launch(
        "NVFP4: B's tensor scale squared, BF16", {"doubled_tensor_scale_b"}, nvfp4_,
        [](BlockLaunch& l) { l.tensor_b *= l.tensor_b; }, default_output(FormatId::bf16));
    launch("NVFP4: another tensor scale", {"other_tensor_scale"}, nvfp4_,
           [](BlockLaunch& l) { l.tensor_b = 0.29F; });
    faults_.push_back({"NVFP4: the second half of B (w3) under the tensor scale of the first",
                       {"other_tensor_scale"},
                       [this] {
                         BlockLaunch right(nvfp4_);
                         BlockLaunch other(nvfp4_);
                         other.tensor_b = 0.29F;
                         std::vector<float> d = right.sums();
                         const std::vector<float> wrong = other.sums();
                         for (std::size_t i = 0; i < d.size(); ++i)
                           if (static_cast<std::int64_t>(i) % nvfp4_.n >= nvfp4_.n / 2)
                             d[i] = wrong[i];
                         return verify_stored(nvfp4_, {}, cast_output(d, {}));
                       }});
  }

  void tails() {
    launch("MXFP8, k = 496: the tail left out", {"dropped_k_tail", "dropped_last_k_tile"}, tail_,
           [](BlockLaunch& l) { l.terms.resize(480); });
    launch("MXFP8, k = 496: the tail has the scale before it", {"tail_scale_a"}, tail_,
           [](BlockLaunch& l) {
             l.bytes_a = [right = l.bytes_a](std::int64_t row, std::int64_t i) {
               return right(row, i == 15 ? 14 : i);
             };
           });
  }

  void stores() {
    const auto overwrite = [&](const std::string& what, Names right, const BlockTensors& t,
                               const std::function<void(Stored&)>& change) {
      faults_.push_back({what, std::move(right), [&t, change] {
                           const OutputCast bf16 = default_output(FormatId::bf16);
                           Stored stored{t.m, t.n, 2, cast_output(BlockLaunch(t).sums(), bf16)};
                           change(stored);
                           return verify_stored(t, bf16, stored.bytes);
                         }});
    };
    overwrite("MXFP4: a tile of 32 x 64 never written", {"zeros"}, mxfp4_,
              [](Stored& s) { s.fill(64, 32, 64, 64, [](auto, auto) { return 0U; }); });
    overwrite("NVFP4: a tile stored in the place of another", {"elsewhere"}, nvfp4_, [](Stored& s) {
      s.fill(0, 32, 0, 64, [&](std::int64_t i, std::int64_t j) { return s.get(64 + i, 64 + j); });
    });
  }

  BlockTensors mxfp8_, mxfp4_, nvfp4_;
  BlockTensors tail_;    ///< K is no multiple of the block
  BlockTensors rare_;    ///< E8M0 codes 0 and 255
  BlockTensors large_;   ///< codes 0 to 2 of A beside large scales of B
  BlockTensors signed_;  ///< UE4M3 codes with sign bits
  std::vector<Fault> faults_;
};

}  // namespace

TEST_CASE("campaign: right block-scaled kernels have the golden bits", "[verify][campaign]") {
  BlockScaled campaign;
  for (const BlockTensors* t : campaign.usual())
    CHECK(cast_output(BlockLaunch(*t).sums(), {}) == golden_output(t->product({})));
}

TEST_CASE("campaign: broken block-scaled kernels are caught and named",
          "[verify][campaign][long]") {
  BlockScaled campaign;
  const std::vector<Fault> faults = campaign.faults();
  CHECK(faults.size() >= 60);
  run_campaign("MXFP8, MXFP4 and NVFP4 kernels", faults, static_cast<int>(faults.size()) - 8);
}
