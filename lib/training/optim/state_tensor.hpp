#pragma once
// One optimizer state in its storage format: codes and their scales. Specified in
// docs/specification/optimizer.md.

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
  tensor,    ///< one scale per tensor: MS-AMP
  group,     ///< one scale for every 128 elements in memory order
  expanded,  ///< COAT's dynamic range expansion of every 128 elements (expansion.hpp)
};
std::string_view to_string(StateScaling scaling);

inline constexpr std::size_t kStateGroup = 128;

/// The storage of a state. FP8 casts saturate; FP16 and BF16 casts overflow to Inf.
/// All round to nearest even and keep subnormals.
struct StateFormat {
  FormatId format = FormatId::f32;  ///< f32, f16, bf16, e4m3fn or e5m2
  StateScaling scaling = StateScaling::none;
  /// For tensor and group: ms_amp (a power of two) or te. A scale above binary32's range
  /// becomes its largest power of two, 2^127, with either rule (*chosen*: in MS-AMP it
  /// is Inf, which makes the tensor NaN).
  ScaleRule rule = ScaleRule::ms_amp;

  friend bool operator==(const StateFormat&, const StateFormat&) = default;
};

/// A storage format as text: `e4m3fn`, `f16 x tensor scale`.
std::string describe(const StateFormat& format);

/// A vector of values in a storage format. Threads may read and write one object
/// concurrently in ranges that begin at multiples of 128.
class StateTensor {
 public:
  /// Initializes with zeros. Throws `Error` for a format or a rule that is not listed
  /// above, and for a scaled f32 state.
  StateTensor(const StateFormat& format, std::size_t size);

  [[nodiscard]] std::size_t size() const { return size_; }

  /// Reads values from `begin` on: code times inverse scale in binary32, with one
  /// rounding (exact for powers of two). Throws `Error` for a range outside the tensor.
  void load(std::size_t begin, std::span<float> values) const;

  /// Whether `begin_store` needs the largest magnitude of the new values.
  [[nodiscard]] bool needs_amax() const { return format_.scaling == StateScaling::tensor; }

  /// Sets the scale for new values. `load` uses the old one until `end_store`, so that
  /// values can be replaced in place, range by range.
  void begin_store(float amax);
  /// Stores values. Throws `Error` unless both ends are multiples of 128 or the tensor's end.
  void store(std::size_t begin, std::span<const float> values);
  void end_store();

  /// Stores all of `values`. The result does not depend on `threads` (0: all).
  void assign(std::span<const float> values, int threads = 0);

  /// Views of codes and scales under `name`, `name.inverse_scale`, and for
  /// expanded states `name.exponent` and `name.centre`, appended to `tensors`.
  void append_to(std::vector<NamedTensor>& tensors, const std::string& name,
                 const std::vector<std::int64_t>& shape) const;
  /// Restores such views. Throws `Error` that names a tensor that is missing, has another
  /// type or shape, or has no scales.
  void restore(std::span<const NamedTensor> tensors, const std::string& name,
               const std::vector<std::int64_t>& shape);

  [[nodiscard]] std::size_t code_bytes() const;   ///< bytes of the codes
  [[nodiscard]] std::size_t scale_bytes() const;  ///< bytes of all other data

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
