#include "fp8lab/reveal/kernel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/policy.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

template <typename T>
void append(T word, std::vector<std::byte>& words) {
  const std::size_t at = words.size();
  words.resize(at + sizeof(T));
  std::memcpy(words.data() + at, &word, sizeof(T));
}

void append_zeros(FormatId id, std::int64_t count, std::vector<std::byte>& words) {
  words.resize(words.size() + static_cast<std::size_t>(count * (format(id).bytes())));
}

}  // namespace

void append_words(FormatId id, std::span<const float> values, std::vector<std::byte>& words) {
  const Format& f = format(id);
  for (const float value : values) {
    if (f.storage_bits == 32) {
      append(std::bit_cast<std::uint32_t>(value), words);
      continue;
    }
    const std::uint32_t code = encode(f, kNvidiaNosat, value);
    if (f.storage_bits == 16)
      append(static_cast<std::uint16_t>(code), words);
    else
      append(static_cast<std::uint8_t>(code), words);
  }
}

PowerProducts::PowerProducts(FormatId a, FormatId b, int most) {
  const auto ends = [most](FormatId id, int& low, int& normal, int& high) {
    const Format& f = format(id);
    high = std::min(static_cast<int>(std::ilogb(f.max_finite())), most);
    normal = std::max(f.min_exponent(), -most);
    low = std::max(f.min_exponent() - f.mantissa_bits, -most);
  };
  ends(a, a_low_, a_normal_, a_high_);
  ends(b, b_low_, b_normal_, b_high_);
}

std::pair<float, float> PowerProducts::factors(int exponent) const {
  const int half = exponent >= 0 ? exponent / 2 : -(-exponent / 2);
  int of_a = std::clamp(half, a_low_, a_high_);
  const int of_b = std::clamp(exponent - of_a, b_low_, b_high_);
  of_a = exponent - of_b;
  return {std::ldexp(1.0F, of_a), std::ldexp(1.0F, of_b)};
}

ProbeRunner::ProbeRunner(ProbeShape shape, ProbeKernel kernel)
    : shape_(shape), kernel_(std::move(kernel)) {
  constexpr std::int64_t kMost = 1 << 16;
  const auto check = [&](std::string_view name, std::int64_t value, std::int64_t least) {
    require(value >= least && value <= kMost, name, fmt::format("{} to {}", least, kMost),
            fmt::format("{}", value));
  };
  check("m", shape.m, 1);
  check("n", shape.n, 1);
  check("k", shape.k, 2);
  for (const auto& [name, id] :
       {std::pair{"a_format", shape.a_format}, std::pair{"b_format", shape.b_format}})
    require(!format(id).is_scale_only() && id != FormatId::e8m13, name, "a format of operands",
            format(id).name);
}

std::vector<float> ProbeRunner::run(std::span<const Probe> probes, std::span<const Probe> whole,
                                    std::vector<float>* whole_outputs) {
  const std::int64_t each = std::min(shape_.m, shape_.n);
  const auto count = static_cast<std::int64_t>(probes.size());
  const auto whole_calls = static_cast<std::int64_t>(whole.size());
  ProbeCalls calls{shape_.a_format,
                   shape_.b_format,
                   whole_calls + (count + each - 1) / each,
                   shape_.m,
                   shape_.n,
                   shape_.k,
                   {},
                   {}};
  for (const Probe& one : whole) {
    append_words(shape_.a_format, one.a, calls.a);
    append_words(shape_.b_format, one.b, calls.b);
  }
  for (std::int64_t begin = 0; begin < count; begin += each) {
    const std::int64_t end = std::min(begin + each, count);
    for (std::int64_t i = begin; i < end; ++i) {
      const Probe& one = probes[static_cast<std::size_t>(i)];
      append_words(shape_.a_format, one.a, calls.a);
      append_words(shape_.b_format, one.b, calls.b);
    }
    append_zeros(shape_.a_format, (shape_.m - (end - begin)) * shape_.k, calls.a);
    append_zeros(shape_.b_format, (shape_.n - (end - begin)) * shape_.k, calls.b);
  }
  const ProbeOutputs outputs = kernel_(calls);
  const std::int64_t size = shape_.m * shape_.n;
  require(static_cast<std::int64_t>(outputs.d.size()) == calls.calls * size, "kernel",
          fmt::format("outputs [{}, {}, {}]", calls.calls, shape_.m, shape_.n),
          counted(outputs.d.size(), "number"));
  const bool known = outputs.output == FormatId::f32 || outputs.output == FormatId::f16 ||
                     outputs.output == FormatId::bf16;
  require(known, "kernel", "outputs of f32, f16 or bf16", format(outputs.output).name);
  require(rounds_ == 0 || outputs.output == output_, "kernel",
          fmt::format("outputs of {}, as before", format(output_).name),
          format(outputs.output).name);
  output_ = outputs.output;
  ++rounds_;
  probes_ += count;
  if (whole_outputs != nullptr)
    whole_outputs->assign(outputs.d.begin(), outputs.d.begin() + whole_calls * size);
  std::vector<float> results;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = (whole_calls + i / each) * size + (i % each) * (shape_.n + 1);
    results.push_back(outputs.d[static_cast<std::size_t>(at)]);
  }
  return results;
}

}  // namespace fp8lab
