#pragma once
// One optimizer state in its storage format: codes, and the scales that its
// system keeps beside them. Specified in docs/specification/optimizer.md.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab {

enum class StateScaling : std::uint8_t {
  none,      ///< codes are the values
  tensor,    ///< one scale a tensor: MS-AMP
  group,     ///< one scale for every 128 elements in memory order
  expanded,  ///< COAT's dynamic range expansion of every 128 elements (expansion.hpp)
};
std::string_view to_string(StateScaling scaling);

inline constexpr std::size_t kStateGroup = 128;

/// How a state is stored. FP8 casts saturate; FP16 and BF16 casts overflow to
/// Inf; all round to nearest even and keep subnormals.
struct StateFormat {
  FormatId format = FormatId::f32;  ///< f32, f16, bf16, e4m3fn or e5m2
  StateScaling scaling = StateScaling::none;
  /// tensor, group: ms_amp (a power of two) or te. A scale above binary32 is its
  /// largest power of two, 2^127, with either rule (*chosen*: MS-AMP's own would
  /// be Inf and turn the tensor into NaN).
  ScaleRule rule = ScaleRule::ms_amp;

  friend bool operator==(const StateFormat&, const StateFormat&) = default;
};

/// `e4m3fn`, `f16 x tensor scale`: for people.
std::string describe(const StateFormat& format);

/// A vector of values in a storage format. Reading and writing are by range, so
/// that threads may share one object on ranges that begin at multiples of 128.
class StateTensor {
 public:
  /// Zeros. Throws `Error` for a format or a rule that is not listed above, and
  /// for a scaled f32 state.
  StateTensor(const StateFormat& format, std::size_t size);

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const StateFormat& format() const { return format_; }

  /// Values from `begin` on: code times inverse scale in binary32, one rounding
  /// (exact for powers of two). Throws `Error` for a range outside the tensor.
  void load(std::size_t begin, std::span<float> values) const;

  /// True where `begin_store` needs the largest magnitude of the new values.
  [[nodiscard]] bool needs_amax() const { return format_.scaling == StateScaling::tensor; }

  /// Fixes the scale of the values to come; loads go on with the old one until
  /// `end_store`, so that values may be replaced in place, range by range.
  void begin_store(float amax);
  /// `begin` is a multiple of 128 and the range ends at one or at the end, else `Error`.
  void store(std::size_t begin, std::span<const float> values);
  void end_store();

  /// Stores all of `values`. The result does not depend on `threads` (0: all).
  void assign(std::span<const float> values, int threads = 0);

  /// Views of codes and scales under `name`, `name.inverse_scale`, and for
  /// expanded states `name.exponent` and `name.centre`, appended to `tensors`.
  void append_to(std::vector<NamedTensor>& tensors, const std::string& name,
                 const std::vector<std::int64_t>& shape) const;
  /// The inverse. Throws `Error` naming a tensor that is missing, differs in type or
  /// shape, or holds no scales.
  void restore(std::span<const NamedTensor> tensors, const std::string& name,
               const std::vector<std::int64_t>& shape);

  [[nodiscard]] std::size_t code_bytes() const;   ///< of the buffer of codes
  [[nodiscard]] std::size_t scale_bytes() const;  ///< of everything beside it

 private:
  [[nodiscard]] std::span<const std::byte> codes() const;
  [[nodiscard]] std::span<std::byte> writable_codes();
  void check_range(std::size_t begin, std::size_t count) const;
  void load_codes(std::size_t begin, float inverse_scale, std::span<float> values) const;
  void store_codes(std::size_t begin, float scale, std::span<const float> values);
  void store_group(std::size_t group, std::span<const float> values);

  StateFormat format_;
  std::size_t size_ = 0;
  std::variant<std::vector<std::uint8_t>, std::vector<std::uint16_t>, std::vector<float>> codes_;
  std::vector<float> inverse_scales_;  ///< one, or one a group; empty without scaling
  std::vector<float> exponents_;       ///< expanded only, one a group
  std::vector<float> centres_;
  TileScale next_{};  ///< tensor scaling, between begin_store and end_store
};

}  // namespace fp8lab
