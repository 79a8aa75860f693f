#include "training/optim/state_tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/threads.hpp"
#include "training/optim/expansion.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 4> kScalingNames{"none", "tensor", "group", "expanded"};
constexpr std::size_t kChunk = 32 * kStateGroup;

/// The types that a state may have; E8M0 is for scales only.
ElementType state_type(FormatId id) {
  require(id == FormatId::f32 || id == FormatId::f16 || id == FormatId::bf16 ||
              id == FormatId::e4m3fn || id == FormatId::e5m2,
          "state format", "f32, f16, bf16, e4m3fn or e5m2", fp8lab::format(id).name);
  return element_type_of(id);
}

CastPolicy policy_of(const Format& f) {
  return f.storage_bits == 8 ? kNvidiaSatfinite : kNvidiaNosat;
}

/// The scale of a tensor or group, a finite one.
TileScale finite_scale(const StateFormat& format, float amax) {
  TileScale scale = tile_scale({.rule = format.rule, .format = format.format}, amax);
  if (std::isinf(scale.scale)) scale.scale = 0x1p127F;
  return {scale.scale, 1.0F / scale.scale, 0};
}

/// The bytes of `name`, checked against type and shape.
std::span<const std::byte> find_bytes(std::span<const NamedTensor> tensors, const std::string& name,
                                      ElementType type, const std::vector<std::int64_t>& shape) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const NamedTensor& t) { return t.name == name; });
  require(found != tensors.end(), name, "a tensor of the optimizer's state", "none");
  const TensorView& view = found->tensor;
  require(view.type == type && view.shape == shape && !view.fortran_order, name,
          fmt::format("{} {}", to_string(type), shape_text(shape)),
          fmt::format("{} {}{}", to_string(view.type), shape_text(view.shape),
                      view.fortran_order ? " in Fortran order" : ""));
  return view.bytes;
}

void restore_floats(std::span<const NamedTensor> tensors, const std::string& name,
                    std::vector<float>& values) {
  if (values.empty()) return;
  const auto bytes =
      find_bytes(tensors, name, ElementType::f32, {static_cast<std::int64_t>(values.size())});
  std::memcpy(values.data(), bytes.data(), bytes.size());
}

void append_floats(std::vector<NamedTensor>& tensors, const std::string& name,
                   const std::vector<float>& values) {
  if (values.empty()) return;
  tensors.push_back({name, view_of(ElementType::f32, {static_cast<std::int64_t>(values.size())},
                                   std::span<const float>(values))});
}

}  // namespace

std::string_view to_string(StateScaling scaling) {
  return kScalingNames[static_cast<std::size_t>(scaling)];
}

std::string describe(const StateFormat& format) {
  const std::string_view name = fp8lab::format(format.format).name;
  if (format.scaling == StateScaling::none) return std::string(name);
  if (format.scaling == StateScaling::tensor) return fmt::format("{} x tensor scale", name);
  return fmt::format("{} x {} of {}", name,
                     format.scaling == StateScaling::group ? "scales" : "expansions", kStateGroup);
}

StateTensor::StateTensor(const StateFormat& format, std::size_t size)
    : format_(format), size_(size) {
  state_type(format.format);
  const Format& f = fp8lab::format(format.format);
  const bool scaled = format.scaling != StateScaling::none;
  require(!scaled || f.storage_bits < 32, "state scaling", "none for f32",
          to_string(format.scaling));
  require(!scaled || format.scaling == StateScaling::expanded || format.rule == ScaleRule::ms_amp ||
              format.rule == ScaleRule::te,
          "state scale rule", "ms_amp or te", to_string(format.rule));
  if (f.storage_bits == 8)
    codes_ = std::vector<std::uint8_t>(size);
  else if (f.storage_bits == 16)
    codes_ = std::vector<std::uint16_t>(size);
  else
    codes_ = std::vector<float>(size);
  const std::size_t groups = (size + kStateGroup - 1) / kStateGroup;
  if (scaled) inverse_scales_.resize(needs_amax() ? 1 : groups, 1.0F);
  if (format.scaling == StateScaling::expanded) {
    exponents_.resize(groups, 1.0F);
    centres_.resize(groups, 1.0F);
  }
}

void StateTensor::check_range(std::size_t begin, std::size_t count) const {
  require(begin <= size_ && count <= size_ - begin, "range",
          fmt::format("inside {} elements", size_), fmt::format("[{}, {})", begin, begin + count));
}

void StateTensor::load_codes(std::size_t begin, float inverse_scale,
                             std::span<float> values) const {
  const std::size_t count = values.size();
  if (const auto* wide = std::get_if<std::vector<float>>(&codes_)) {
    std::copy_n(wide->begin() + static_cast<std::ptrdiff_t>(begin), count, values.begin());
  } else if (const auto* half = std::get_if<std::vector<std::uint16_t>>(&codes_)) {
    const std::span<const float> table = decode_table(format_.format);
    for (std::size_t i = 0; i < count; ++i) values[i] = table[(*half)[begin + i]] * inverse_scale;
  } else {
    decode(std::span(std::get<std::vector<std::uint8_t>>(codes_)).subspan(begin, count), values,
           {.format = format_.format, .inverse_scale = inverse_scale});
  }
}

void StateTensor::store_codes(std::size_t begin, float scale, std::span<const float> values) {
  const std::size_t count = values.size();
  const EncodeOptions options{.format = format_.format,
                              .policy = policy_of(fp8lab::format(format_.format)),
                              .scale = scale};
  if (auto* wide = std::get_if<std::vector<float>>(&codes_))
    std::copy_n(values.begin(), count, wide->begin() + static_cast<std::ptrdiff_t>(begin));
  else if (auto* half = std::get_if<std::vector<std::uint16_t>>(&codes_))
    encode(values, std::span(*half).subspan(begin, count), options);
  else
    encode(values, std::span(std::get<std::vector<std::uint8_t>>(codes_)).subspan(begin, count),
           options);
}

void StateTensor::load(std::size_t begin, std::span<float> values) const {
  check_range(begin, values.size());
  if (format_.scaling == StateScaling::none) return load_codes(begin, 1.0F, values);
  if (needs_amax()) return load_codes(begin, inverse_scales_[0], values);
  for (std::size_t done = 0; done < values.size();) {
    const std::size_t group = (begin + done) / kStateGroup;
    const std::size_t count =
        std::min((group + 1) * kStateGroup - begin - done, values.size() - done);
    const std::span<float> part = values.subspan(done, count);
    if (format_.scaling == StateScaling::group) {
      load_codes(begin + done, inverse_scales_[group], part);
    } else {
      const Expansion e{exponents_[group], centres_[group], inverse_scales_[group]};
      load_codes(begin + done, 1.0F, part);
      for (float& value : part) value = e.contract(value);
    }
    done += count;
  }
}

void StateTensor::begin_store(float amax) {
  if (needs_amax()) next_ = finite_scale(format_, amax);
}

void StateTensor::store_group(std::size_t group, std::span<const float> values) {
  const std::size_t begin = group * kStateGroup;
  if (format_.scaling == StateScaling::group) {
    const TileScale scale = finite_scale(format_, amax(values, true));
    inverse_scales_[group] = scale.inverse_scale;
    return store_codes(begin, scale.scale, values);
  }
  const Expansion e = expansion_of(values, fp8lab::format(format_.format));
  inverse_scales_[group] = e.inverse_scale;
  exponents_[group] = e.exponent;
  centres_[group] = e.centre;
  std::array<float, kStateGroup> expanded{};
  std::transform(values.begin(), values.end(), expanded.begin(),
                 [&](float x) { return e.expand(x); });
  store_codes(begin, 1.0F, std::span(expanded).first(values.size()));
}

void StateTensor::store(std::size_t begin, std::span<const float> values) {
  check_range(begin, values.size());
  const std::size_t end = begin + values.size();
  require(begin % kStateGroup == 0 && (end % kStateGroup == 0 || end == size_), "range",
          fmt::format("bounds at multiples of {}", kStateGroup),
          fmt::format("[{}, {}) of {}", begin, end, size_));
  if (format_.scaling == StateScaling::none) return store_codes(begin, 1.0F, values);
  if (needs_amax()) return store_codes(begin, next_.scale, values);
  for (std::size_t at = begin; at < end; at += kStateGroup)
    store_group(at / kStateGroup, values.subspan(at - begin, std::min(kStateGroup, end - at)));
}

void StateTensor::end_store() {
  if (needs_amax()) inverse_scales_[0] = next_.inverse_scale;
}

void StateTensor::assign(std::span<const float> values, int threads) {
  const FloatEnvironment environment;
  require(values.size() == size_, "values", counted(size_, "element"),
          fmt::format("{}", values.size()));
  const auto chunks = static_cast<std::int64_t>((size_ + kChunk - 1) / kChunk);
  const auto used = static_cast<int>(std::clamp<std::int64_t>(chunks, 1, team_size(threads)));
  const auto chunk = [&](std::int64_t c) {
    const std::size_t begin = static_cast<std::size_t>(c) * kChunk;
    return values.subspan(begin, std::min(kChunk, size_ - begin));
  };
  if (needs_amax()) {
    std::vector<float> partial(static_cast<std::size_t>(chunks));
#pragma omp parallel for num_threads(used) schedule(static)
    for (std::int64_t c = 0; c < chunks; ++c) {
      const FloatEnvironment of_thread;
      partial[static_cast<std::size_t>(c)] = amax(chunk(c), true);
    }
    begin_store(amax(partial, true));
  }
#pragma omp parallel for num_threads(used) schedule(static)
  for (std::int64_t c = 0; c < chunks; ++c) {
    const FloatEnvironment of_thread;
    store(static_cast<std::size_t>(c) * kChunk, chunk(c));
  }
  end_store();
}

std::span<const std::byte> StateTensor::codes() const {
  return std::visit([](const auto& codes) { return std::as_bytes(std::span(codes)); }, codes_);
}

std::span<std::byte> StateTensor::writable_codes() {
  return std::visit([](auto& codes) { return std::as_writable_bytes(std::span(codes)); }, codes_);
}

void StateTensor::append_to(std::vector<NamedTensor>& tensors, const std::string& name,
                            const std::vector<std::int64_t>& shape) const {
  tensors.push_back({name, {state_type(format_.format), shape, codes(), false}});
  append_floats(tensors, name + ".inverse_scale", inverse_scales_);
  append_floats(tensors, name + ".exponent", exponents_);
  append_floats(tensors, name + ".centre", centres_);
}

void StateTensor::restore(std::span<const NamedTensor> tensors, const std::string& name,
                          const std::vector<std::int64_t>& shape) {
  const auto bytes = find_bytes(tensors, name, state_type(format_.format), shape);
  require(bytes.size() == code_bytes(), name, counted(code_bytes(), "byte"),
          fmt::format("{}", bytes.size()));
  if (!bytes.empty()) std::memcpy(writable_codes().data(), bytes.data(), bytes.size());
  restore_floats(tensors, name + ".inverse_scale", inverse_scales_);
  const bool multiplies = format_.scaling != StateScaling::expanded;
  for (const float inverse : inverse_scales_)
    require(!multiplies || (std::isfinite(inverse) && inverse > 0.0F), name + ".inverse_scale",
            "finite, positive numbers", fmt::format("{}", inverse));
  restore_floats(tensors, name + ".exponent", exponents_);
  restore_floats(tensors, name + ".centre", centres_);
}

std::size_t StateTensor::code_bytes() const { return codes().size(); }

std::size_t StateTensor::scale_bytes() const {
  return sizeof(float) * (inverse_scales_.size() + exponents_.size() + centres_.size());
}

}  // namespace fp8lab
