// Broken versions of a grouped kernel in Blackwell's style: rows of A in groups, each with weights
// of its own, on MXFP8, MXFP4 and NVFP4 operands whose scales lie in memory as bytes.

#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/verify/grouped.hpp"
#include "verify/campaign/campaign.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

constexpr std::int64_t kGroups = 4;
constexpr std::int64_t kBroken = 2;  ///< the group that faults are planted in

/// What a launch reads: one code a byte, the bytes of the scales, and tensor scales of each group.
struct GroupTensors {
  FormatId codes = FormatId::e4m3fn;
  FormatId scale_format = FormatId::e8m0fnu;
  std::string model = "sm100.tcgen05.mxf8f6f4.e4m3";
  std::int64_t block = 32;
  std::int64_t n = 96;
  std::int64_t k = 256;
  std::vector<std::int64_t> ends{48, 112, 158, 206};
  std::vector<std::uint8_t> a{}, b{}, scale_a{}, scale_b{};
  std::vector<float> tensor_a{}, tensor_b{};

  [[nodiscard]] std::int64_t blocks() const { return k / block; }
  [[nodiscard]] std::int64_t rows() const { return ends.back(); }
  [[nodiscard]] std::int64_t begin(std::int64_t group) const {
    return group == 0 ? 0 : ends[static_cast<std::size_t>(group - 1)];
  }
  [[nodiscard]] std::int64_t end(std::int64_t group) const {
    return ends[static_cast<std::size_t>(group)];
  }

  void fill(std::uint64_t seed) {
    const Format& f = format(codes);
    const bool e8m0 = scale_format == FormatId::e8m0fnu;
    const auto drawn = [&](const char* name, std::int64_t count, const auto& value) {
      const RandomStream stream(seed, name);
      std::vector<std::uint8_t> bytes;
      for (std::int64_t i = 0; i < count; ++i)
        bytes.push_back(static_cast<std::uint8_t>(value(stream, static_cast<std::uint64_t>(i))));
      return bytes;
    };
    const auto code = [&](const RandomStream& stream, std::uint64_t i) {
      const double spread = codes == FormatId::e2m1 ? 2.5 : 20.0;
      return encode(f, kNvidiaSatfinite, static_cast<float>(spread * stream.normal(i)));
    };
    const auto scale = [&](const RandomStream& stream, std::uint64_t i) {
      return (e8m0 ? 118 : 24) + stream.below(i, e8m0 ? 7 : 40);
    };
    a = drawn("a", rows() * k, code);
    b = drawn("b", kGroups * n * k, code);
    scale_a = drawn("scale_a", rows() * blocks(), scale);
    scale_b = drawn("scale_b", kGroups * n * blocks(), scale);
  }

  [[nodiscard]] GroupedProduct product() const {
    GemmOperands o;
    const ElementType code = element_type_of(codes);
    const ElementType scale = element_type_of(scale_format);
    o.a.codes = view_of(code, {rows(), k}, std::span(a));
    o.b.codes = view_of(code, {kGroups, n, k}, std::span(b));
    o.a.scales = view_of(scale, {rows(), blocks()}, std::span(scale_a));
    o.b.scales = view_of(scale, {kGroups, n, blocks()}, std::span(scale_b));
    o.a.tiles = o.b.tiles = ScaleTiles{1, block};
    o.a.group_tensor_scales = tensor_a;
    o.b.group_tensor_scales = tensor_b;
    return make_grouped_product(o, {.model = model}, {GroupKind::row_ends, ends, 0});
  }

  /// Bytes of one group's weights, of `of` bytes a row: codes or scales.
  [[nodiscard]] std::span<std::uint8_t> of_group(std::vector<std::uint8_t>& bytes,
                                                 std::int64_t group, std::int64_t of) const {
    return std::span(bytes).subspan(static_cast<std::size_t>(group * n * of),
                                    static_cast<std::size_t>(n * of));
  }
  /// Bytes of `count` rows of A from `row` on.
  [[nodiscard]] static std::span<std::uint8_t> of_rows(std::vector<std::uint8_t>& bytes,
                                                       std::int64_t row, std::int64_t count,
                                                       std::int64_t of) {
    return std::span(bytes).subspan(static_cast<std::size_t>(row * of),
                                    static_cast<std::size_t>(count * of));
  }
};

class Grouped {
 public:
  Grouped() {
    mxfp8_.fill(21);
    mxfp4_.codes = nvfp4_.codes = FormatId::e2m1;
    mxfp4_.model = nvfp4_.model = "sm100.tcgen05.mxf4nvf4";
    mxfp4_.fill(22);
    nvfp4_.scale_format = FormatId::e4m3fn;
    nvfp4_.block = 16;
    nvfp4_.tensor_a = {0.013F, 0.21F, 0.7F, 0.045F};
    nvfp4_.tensor_b = {0.37F, 0.11F, 0.029F, 0.53F};
    nvfp4_.fill(23);
  }

  std::vector<Fault> faults() {
    for (const auto& [t, name] : {std::pair<const GroupTensors*, std::string>{&mxfp8_, "MXFP8: "},
                                  {&mxfp4_, "MXFP4: "},
                                  {&nvfp4_, "NVFP4: "}}) {
      other_groups(*t, name);
      scales(*t, name);
    }
    tensor_scales();
    codes();
    return std::move(faults_);
  }

 private:
  using Names = std::vector<std::string>;
  using Change = std::function<void(GroupTensors&)>;

  /// The output of what was read, verified against what should have been; the broken group's
  /// report, and no other group is wrong.
  void launch(const std::string& what, Names right, const GroupTensors& t, const Change& change) {
    faults_.push_back(
        {what, std::move(right), [&t, change, what] {
           GroupTensors read = t;
           change(read);
           const GroupedProduct product = t.product();
           const std::vector<std::byte> got = golden_output(read.product());
           const GroupedReport report =
               verify(product, {"got", {ElementType::f32, product.shape, got}, nullptr});
           INFO(what);
           for (const GroupOutcome& one : report.groups)
             CHECK((one.report.verdict == Verdict::mismatch) == (one.group == kBroken));
           return report.groups[kBroken].report;
         }});
  }

  void other_groups(const GroupTensors& t, const std::string& name) {
    for (const auto& [other, relation] :
         {std::pair<std::int64_t, std::string>{1, "previous"}, {3, "next"}, {0, "first"}}) {
      const std::string of = "_of_" + relation + "_group";
      launch(name + "weights of the " + relation + " group", {"weight" + of}, t,
             [other = other](GroupTensors& g) {
               copy_weights(g, other, true, true);
               if (!g.tensor_b.empty()) g.tensor_b[kBroken] = g.tensor_b[at(other)];
             });
      launch(name + "codes of the " + relation + " group's weights", {"weight_codes" + of}, t,
             [other = other](GroupTensors& g) { copy_weights(g, other, true, false); });
      launch(name + "scales of the " + relation + " group's weights", {"scale_b" + of}, t,
             [other = other](GroupTensors& g) { copy_weights(g, other, false, true); });
      launch(name + "rows of the " + relation + " group", {"input" + of}, t,
             [other = other](GroupTensors& g) {
               copy_rows(g, other, true, true);
               if (!g.tensor_a.empty()) g.tensor_a[kBroken] = g.tensor_a[at(other)];
             });
      launch(name + "scales of the " + relation + " group's rows", {"scale_a" + of}, t,
             [other = other](GroupTensors& g) { copy_rows(g, other, false, true); });
    }
  }

  void scales(const GroupTensors& t, const std::string& name) {
    const bool e8m0 = t.scale_format == FormatId::e8m0fnu;
    const std::uint8_t one = e8m0 ? 127 : 56;
    const std::uint8_t binade = e8m0 ? 1 : 8;
    const auto weights = [](GroupTensors& g) { return g.of_group(g.scale_b, kBroken, g.blocks()); };
    const auto rows = [](GroupTensors& g) {
      return GroupTensors::of_rows(g.scale_a, g.begin(kBroken), g.end(kBroken) - g.begin(kBroken),
                                   g.blocks());
    };
    launch(name + "a group's scale of B missing", {"missing_scale_b"}, t,
           [=](GroupTensors& g) { std::ranges::fill(weights(g), one); });
    launch(name + "a group's scale of A missing", {"missing_scale_a"}, t,
           [=](GroupTensors& g) { std::ranges::fill(rows(g), one); });
    launch(name + "a group's scale of B one binade low",
           {"scale_b_one_exponent_low", "scale_a_one_exponent_low", "halved_output"}, t,
           [=](GroupTensors& g) {
             for (std::uint8_t& byte : weights(g)) byte = static_cast<std::uint8_t>(byte - binade);
           });
    launch(name + "a group's scale of A of the block before", {"stale_scale_a"}, t,
           [=](GroupTensors& g) {
             const std::span<std::uint8_t> bytes = rows(g);
             const auto blocks = static_cast<std::size_t>(g.blocks());
             for (std::size_t i = bytes.size(); i-- > 0;)
               if (i % blocks != 0) bytes[i] = bytes[i - 1];
           });
    launch(name + "a group's scale of B of the next row", {"scale_b_of_next_row"}, t,
           [=](GroupTensors& g) {
             const std::span<std::uint8_t> bytes = weights(g);
             std::rotate(bytes.begin(), bytes.begin() + g.blocks(), bytes.end());
           });
  }

  void tensor_scales() {
    const auto of_b = [&](const std::string& what, const std::string& right, float scale) {
      launch("NVFP4: " + what, {right}, nvfp4_,
             [scale](GroupTensors& g) { g.tensor_b[kBroken] = scale; });
    };
    of_b("B's tensor scale of the previous group", "tensor_scale_b_of_previous_group",
         nvfp4_.tensor_b[1]);
    of_b("B's tensor scale of the next group", "tensor_scale_b_of_next_group", nvfp4_.tensor_b[3]);
    of_b("B's tensor scale of the first group", "tensor_scale_b_of_first_group",
         nvfp4_.tensor_b[0]);
    of_b("a group's tensor scale of B missing", "missing_tensor_scale_b", 1.0F);
    of_b("a group's tensor scale of B inverted", "inverted_tensor_scale_b",
         1.0F / nvfp4_.tensor_b[kBroken]);
    launch("NVFP4: A's tensor scale of the next group", {"tensor_scale_a_of_next_group"}, nvfp4_,
           [](GroupTensors& g) { g.tensor_a[kBroken] = g.tensor_a[3]; });
  }

  void codes() {
    for (const auto& [t, name] :
         {std::pair<const GroupTensors*, std::string>{&mxfp4_, "MXFP4: "}, {&nvfp4_, "NVFP4: "}})
      launch(name + "a group's nibbles of B exchanged",
             {"exchanged_nibbles_a", "exchanged_nibbles_b"}, *t, [](GroupTensors& g) {
               const std::span<std::uint8_t> bytes = g.of_group(g.b, kBroken, g.k);
               for (std::size_t i = 0; i < bytes.size(); i += 2) std::swap(bytes[i], bytes[i + 1]);
             });
  }

  static std::size_t at(std::int64_t group) { return static_cast<std::size_t>(group); }

  static void copy_weights(GroupTensors& g, std::int64_t other, bool codes, bool scales) {
    const auto copy = [&](std::vector<std::uint8_t>& bytes, std::int64_t of) {
      std::ranges::copy(g.of_group(bytes, other, of), g.of_group(bytes, kBroken, of).begin());
    };
    if (codes) copy(g.b, g.k);
    if (scales) copy(g.scale_b, g.blocks());
  }
  static void copy_rows(GroupTensors& g, std::int64_t other, bool codes, bool scales) {
    const std::int64_t count = g.end(kBroken) - g.begin(kBroken);
    const auto copy = [&](std::vector<std::uint8_t>& bytes, std::int64_t of) {
      std::ranges::copy(GroupTensors::of_rows(bytes, g.begin(other), count, of),
                        GroupTensors::of_rows(bytes, g.begin(kBroken), count, of).begin());
    };
    if (codes) copy(g.a, g.k);
    if (scales) copy(g.scale_a, g.blocks());
  }

  GroupTensors mxfp8_, mxfp4_, nvfp4_;
  std::vector<Fault> faults_;
};

}  // namespace

TEST_CASE("campaign: broken grouped block-scaled kernels are caught and named",
          "[verify][campaign][long]") {
  Grouped campaign;
  const std::vector<Fault> faults = campaign.faults();
  CHECK(faults.size() >= 60);
  run_campaign("grouped MXFP8, MXFP4 and NVFP4 kernels", faults,
               static_cast<int>(faults.size()) - 2);
}
