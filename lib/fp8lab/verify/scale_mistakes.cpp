#include "fp8lab/verify/scale_mistakes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/scale_variants.hpp"

namespace fp8lab {
namespace {

using namespace scale_positions;

constexpr int kE8m0Bias = 127;

/// Whether there are scales of this operand, and all satisfy `holds`.
template <typename Holds>
bool all_scales(const InverseScales& scales, const Holds& holds) {
  return !scales.empty() && std::ranges::all_of(scales.values, holds);
}

/// A value of E8M0, NaN included.
bool is_e8m0(float x) {
  int exponent = 0;
  return std::isnan(x) || (x > 0.0F && std::isfinite(x) && std::frexp(x, &exponent) == 0.5F);
}

/// The E8M0 code of one of its values.
float e8m0_code(float x) {
  if (std::isnan(x)) return 255.0F;
  return static_cast<float>(std::ilogb(x) + kE8m0Bias);
}

const Format& e4m3() { return format(FormatId::e4m3fn); }

bool is_ue4m3(float x) {
  return std::isnan(x) ||
         (!std::signbit(x) &&
          static_cast<float>(decode(e4m3(), encode(e4m3(), kNvidiaSatfinite, x))) == x);
}

float ue4m3_code(float x) { return static_cast<float>(encode(e4m3(), kNvidiaNosat, x)); }

float power_of_two_below(float x) {
  if (!std::isfinite(x) || x <= 0.0F) return x;
  return std::ldexp(1.0F, std::ilogb(x));
}

float nearest_power_of_two(float x) {
  if (!std::isfinite(x) || x <= 0.0F) return x;
  const float below = power_of_two_below(x);
  return x / below >= 1.5F ? 2.0F * below : below;
}

/// The length of scale tiles along K that the operands have, where it is one length; 0 without any.
std::int64_t longest_tile_along_k(const GemmProblem& p) {
  return std::max(tile_along_k(p.scale_a, p.a), tile_along_k(p.scale_b, p.b));
}

class Table {
 public:
  explicit Table(const Product& product) : product_(product), p_(product.problem) {}

  std::vector<ScaleMistake> rows() && {
    values();
    coded_a_ = all_scales(p_.scale_a, is_e8m0);
    coded_b_ = all_scales(p_.scale_b, is_e8m0);
    if (coded_a_ || coded_b_) e8m0_codes();
    coded_a_ = p_.scale_a.k_block == 16 && all_scales(p_.scale_a, is_ue4m3);
    coded_b_ = p_.scale_b.k_block == 16 && all_scales(p_.scale_b, is_ue4m3);
    if (coded_a_ || coded_b_) ue4m3_codes();
    places_along_k();
    places_along_rows();
    orders();
    return std::move(rows_);
  }

 private:
  void value(std::string name, std::string text, std::function<float(float)> of) {
    rows_.push_back({std::move(name), std::move(text),
                     [of = std::move(of)](const Product& whole, const Sample& sample, Side side) {
                       return with_scale_values(take(whole, sample), side, of);
                     }});
  }
  /// The same for scales that are codes: a side whose scales are not is left out.
  void code(std::string name, std::string text, std::function<float(float)> of) {
    rows_.push_back({std::move(name), std::move(text),
                     [of = std::move(of), a = coded_a_, b = coded_b_](
                         const Product& whole, const Sample& sample, Side side) {
                       if ((side != Side::b && !a) || (side != Side::a && !b))
                         return std::optional<Product>{};
                       return with_scale_values(take(whole, sample), side, of);
                     }});
  }
  void place(std::string name, std::string text, const ScalePosition& position,
             std::int64_t k_block = 0) {
    rows_.push_back({std::move(name), std::move(text),
                     [=](const Product& whole, const Sample& sample, Side side) {
                       return take_with_scales_read_at(whole, sample, side, position, k_block);
                     }});
  }

  void values() {
    value("missing_scale_{}", "{} not applied", [](float) { return 1.0F; });
    value("doubled_scale_{}", "{} applied twice", [](float x) { return x * x; });
    value("inverted_scale_{}", "{} inverted: divided instead of multiplied",
          [](float x) { return 1.0F / x; });
    rows_.push_back({"e8m0_scale_{}_without_requantizing",
                     "{} rounded up to a power of two (E8M0), with unchanged codes",
                     [](const Product& whole, const Sample& sample, Side side) {
                       return with_power_of_two_scales(take(whole, sample), side);
                     }});
    value("e8m0_scale_{}_truncated",
          "{} truncated to a power of two: the exponent alone, with unchanged codes",
          power_of_two_below);
    value("e8m0_scale_{}_nearest", "{} rounded to the nearest power of two, with unchanged codes",
          nearest_power_of_two);
    for (const FormatId id : {FormatId::bf16, FormatId::f16})
      value(fmt::format("{}_scale_{{}}", format(id).name),
            fmt::format("{{}} rounded to {}", format(id).name), [id](float x) {
              return static_cast<float>(decode(format(id), encode(format(id), kNvidiaNosat, x)));
            });
    CastPolicy toward_zero = kNvidiaNosat;
    toward_zero.rounding = RoundingMode::toward_zero;
    for (const FormatId id : {FormatId::bf16, FormatId::f16})
      value(fmt::format("{}_scale_{{}}_truncated", format(id).name),
            fmt::format("{{}} truncated to {}", format(id).name), [id, toward_zero](float x) {
              return static_cast<float>(decode(format(id), encode(format(id), toward_zero, x)));
            });
  }

  void e8m0_codes() {
    code("scale_{}_one_exponent_low", "{} one power of two too low: another bias of E8M0",
         [](float x) { return 0.5F * x; });
    code("scale_{}_one_exponent_high", "{} one power of two too high: another bias of E8M0",
         [](float x) { return 2.0F * x; });
    code("e8m0_byte_as_number_{}", "{}: the E8M0 byte taken for a number (127 for 1)", e8m0_code);
    code("e8m0_read_as_ue4m3_{}", "{}: E8M0 bytes read as UE4M3", [](float x) {
      const auto code = static_cast<std::uint32_t>(e8m0_code(x)) & e4m3().magnitude_mask();
      return static_cast<float>(decode(e4m3(), code));
    });
    code("e8m0_code_0_as_zero_{}", "{}: E8M0 code 0 read as 0 (right: 2^-127)",
         [](float x) { return x == std::ldexp(1.0F, -kE8m0Bias) ? 0.0F : x; });
    code("e8m0_code_255_as_infinity_{}", "{}: E8M0 code 255 read as infinity (right: NaN)",
         [](float x) { return std::isnan(x) ? std::numeric_limits<float>::infinity() : x; });
    code("e8m0_codes_0_and_255_{}", "{}: E8M0 codes 0 and 255 read as 0 and infinity", [](float x) {
      if (std::isnan(x)) return std::numeric_limits<float>::infinity();
      return x == std::ldexp(1.0F, -kE8m0Bias) ? 0.0F : x;
    });
  }

  void ue4m3_codes() {
    code("scale_{}_one_exponent_low", "{} one power of two too low: another bias of UE4M3",
         [](float x) { return 0.5F * x; });
    code("scale_{}_one_exponent_high", "{} one power of two too high: another bias of UE4M3",
         [](float x) { return 2.0F * x; });
    code("ue4m3_byte_as_number_{}", "{}: the UE4M3 byte taken for a number (56 for 1)", ue4m3_code);
    code("ue4m3_read_as_e8m0_{}", "{}: UE4M3 bytes read as E8M0",
         [](float x) { return std::ldexp(1.0F, static_cast<int>(ue4m3_code(x)) - kE8m0Bias); });
    code("ue4m3_subnormals_flushed_{}", "{}: subnormal UE4M3 codes read as 0",
         [](float x) { return x < std::ldexp(1.0F, -6) ? 0.0F : x; });
    if (product_.signed_scales_a.empty() && product_.signed_scales_b.empty()) return;
    rows_.push_back({"ue4m3_sign_used_{}", "{}: the sign bit of UE4M3, which is ignored, was used",
                     [](const Product& whole, const Sample& sample, Side side) {
                       Product with_signs = whole;
                       const bool a = side != Side::b && !whole.signed_scales_a.empty();
                       const bool b = side != Side::a && !whole.signed_scales_b.empty();
                       if (a) with_signs.problem.scale_a.values = whole.signed_scales_a;
                       if (b) with_signs.problem.scale_b.values = whole.signed_scales_b;
                       return a || b ? std::optional(take(with_signs, sample)) : std::nullopt;
                     }});
  }

  void places_along_k() {
    place("stale_scale_{}", "{} of the tile of K before", moved_along_k(-1));
    place("next_scale_{}", "{} of the next tile of K", moved_along_k(1));
    place("first_scale_{}", "{} of the first tile of K throughout", first_of_k());
    place("tail_scale_{}", "{} of the last, shorter tile of K: that of the tile before",
          tail_as_before());
    const std::int64_t tile = longest_tile_along_k(p_);
    if (tile == 0) return;
    const std::int64_t tiles = ceil_divide(p_.a.k, tile);
    for (const auto& [column, name] :
         {std::pair{tiles - 1, "last"}, std::pair{std::int64_t{0}, "first"}})
      place(fmt::format("missing_{}_scale_{{}}", name),
            fmt::format("{{}} of the {} tile of K, [{}, {}), not applied", name, column * tile,
                        std::min((column + 1) * tile, p_.a.k)),
            without_column(column));
    if (tile % 2 == 0)
      place("half_tile_scale_{}",
            "{}: the second half of each tile of K read the scale of the next tile",
            half_tiles_rounded_up(), tile / 2);
    for (const std::int64_t group : {16, 32, 64, 128, 256, 512}) groups_along_k(group, tile);
  }

  /// The kernel takes a tile to have `group` terms.
  void groups_along_k(std::int64_t group, std::int64_t tile) {
    if (group == tile) return;
    const std::string name = fmt::format("scale_group_{}_{{}}", group);
    const std::string text = fmt::format("{{}} read as if a tile had {} terms of K", group);
    place(name, text, group_along_k(group, WiderRows::own));
    place(name, text, group_along_k(group, WiderRows::short_));
    if (group > tile) {
      place(name, fmt::format("{{}}: one for {} terms of K, the first of its tiles", group),
            group_along_k(group, WiderRows::first));
      place(name, fmt::format("{{}}: one for {} terms of K, the last of its tiles", group),
            group_along_k(group, WiderRows::last));
    } else if (tile % group == 0) {
      place(name, text, narrower_tiles(), group);
    }
  }

  /// Rows of tiles of the operand that has more of them.
  [[nodiscard]] std::int64_t rows_of_tiles() const {
    const auto rows = [](const InverseScales& scales, const CodeMatrix& m) {
      return scales.empty() ? std::int64_t{0} : ceil_divide(m.rows, scales.row_block);
    };
    return std::max(rows(p_.scale_a, p_.a), rows(p_.scale_b, p_.b));
  }

  void places_along_rows() {
    place("scale_{}_of_first_row", "{} of the first row of tiles in all rows",
          [](const ScaleTileGrid&, std::int64_t, std::int64_t column) { return column; });
    if (rows_of_tiles() == 2)  // the next one is the previous one, too
      place("scale_{}_of_other_row", "{} of the other one of two rows of tiles",
            moved_along_rows(1));
    for (const std::int64_t by : {1, -1})
      place(fmt::format("scale_{{}}_of_{}_row", by > 0 ? "next" : "previous"),
            fmt::format("{{}} of the {} row of tiles", by > 0 ? "next" : "previous"),
            moved_along_rows(by));
    for (const std::int64_t mask : {1, 2, 4, 8, 16, 32, 64, 128})
      place(fmt::format("scale_rows_xor_{}_{{}}", mask),
            fmt::format("{{}} of another row: row r has that of row r xor {}", mask),
            rows_xor(mask));
    for (const std::int64_t group : {1, 32, 64, 128, 256})
      rows_.push_back({fmt::format("scale_row_group_{}_{{}}", group),
                       fmt::format("{{}} read as if a tile had {} rows", group),
                       [group](const Product& whole, const Sample& sample, Side side) {
                         const std::optional<Product> wrong =
                             with_scale_group_along_rows(whole, side, group);
                         return wrong ? std::optional(take(*wrong, sample)) : std::nullopt;
                       }});
  }

  /// The whole grid in another order.
  void orders() {
    if (longest_tile_along_k(p_) == 0) return;
    place("wrong_scale_axis_{}", "{} read along the wrong axis", column_major());
    place("wrong_scale_axis_{}", "{}: a column-major grid read as row-major",
          row_major_of_column_major());
    place("linear_scale_read_as_128x4_{}", "{}: a row-major grid read as blocks of 128 x 4",
          blocked_128x4());
    place("128x4_scale_read_as_linear_{}", "{}: blocks of 128 x 4 read as a row-major grid",
          row_major_of_blocked_128x4());
  }

  const Product& product_;
  const GemmProblem& p_;
  bool coded_a_ = false;  ///< whether the scales of A are codes of the format in question
  bool coded_b_ = false;
  std::vector<ScaleMistake> rows_;
};

}  // namespace

std::vector<ScaleMistake> scale_mistakes(const Product& product) { return Table(product).rows(); }

}  // namespace fp8lab
