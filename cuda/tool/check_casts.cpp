// Every input of every conversion.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <utility>

#include "backends.hpp"
#include "casts.hpp"
#include "command.hpp"
#include "device_buffer.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "narrow_casts.hpp"
#include "stochastic_casts.hpp"
#include "tool/judge_cast.hpp"
#include "tool/judge_rounding.hpp"

namespace fp8lab::cuda {
namespace {

constexpr std::uint64_t kChunk = std::uint64_t{1} << 28;

const Format& format_of(Fp8 type) {
  return format(type == Fp8::e4m3 ? FormatId::e4m3fn : FormatId::e5m2);
}

void show(const std::string& name, std::uint64_t mismatches, std::uint64_t input,
          std::uint32_t chip, std::uint32_t library) {
  if (mismatches <= 20)
    fmt::print("{}: input {:08x}: the chip gives {:04x}, the library {:04x}\n", name, input, chip,
               library);
}

CheckRow check_from_float(Fp8 type) {
  const Format& f = format_of(type);
  CheckRow row{fmt::format("cvt.rn.satfinite.{}x2.f32", f.name), std::uint64_t{1} << 32, 0};
  DeviceBuffer<std::uint8_t> device(kChunk);
  for (std::uint64_t first = 0; first < row.cases; first += kChunk) {
    launch_cast_from_float(type, first, kChunk, device.data());
    const std::vector<std::uint8_t> codes = device.copy_out();
    std::vector<std::uint64_t> wrong;
#pragma omp parallel for schedule(static)
    for (std::uint64_t i = 0; i < kChunk; ++i) {
      const float x = std::bit_cast<float>(static_cast<std::uint32_t>(first + i));
      if (encode(f, kNvidiaSatfinite, x) == codes[i]) continue;
#pragma omp critical
      wrong.push_back(i);
    }
    std::sort(wrong.begin(), wrong.end());
    for (const std::uint64_t i : wrong) {
      const float x = std::bit_cast<float>(static_cast<std::uint32_t>(first + i));
      show(row.name, ++row.mismatches, first + i, codes[i], encode(f, kNvidiaSatfinite, x));
    }
  }
  return row;
}

CheckRow check_from_half(Fp8 type) {
  const Format& f = format_of(type);
  CheckRow row{fmt::format("cvt.rn.satfinite.{}x2.f16x2", f.name), 1u << 16, 0};
  DeviceBuffer<std::uint8_t> device(row.cases);
  launch_cast_from_half(type, device.data());
  const std::vector<std::uint8_t> codes = device.copy_out();
  for (std::uint32_t half = 0; half < row.cases; ++half) {
    const std::uint32_t expected =
        cast(f, kNvidiaSatfinite, unpack(format(FormatId::f16), half)).code;
    if (codes[half] != expected) show(row.name, ++row.mismatches, half, codes[half], expected);
  }
  return row;
}

CheckRow check_to_half(Fp8 type) {
  const Format& f = format_of(type);
  CheckRow row{fmt::format("cvt.rn.f16x2.{}x2", f.name), 1u << 8, 0};
  DeviceBuffer<std::uint16_t> device(row.cases);
  launch_cast_to_half(type, device.data());
  const std::vector<std::uint16_t> halves = device.copy_out();
  for (std::uint32_t code = 0; code < row.cases; ++code) {
    const std::uint32_t expected = cast(format(FormatId::f16), kNvidiaNosat, unpack(f, code)).code;
    if (halves[code] != expected) show(row.name, ++row.mismatches, code, halves[code], expected);
  }
  return row;
}

/// A tensor through the backend that experiments name: random bits, of odd length.
CheckRow check_backend(const Format& f) {
  CheckRow row{fmt::format("--backend cuda, tensor to {}", f.name), (1u << 20) + 1, 0};
  const RandomStream random(1, "cuda/cast");
  std::vector<float> values;
  for (std::uint64_t i = 0; i < row.cases; ++i)
    values.push_back(std::bit_cast<float>(random.bits32(i)));
  std::vector<std::uint8_t> codes(values.size());
  if (!find_backend(backends(), "cuda").cast(f.id, kNvidiaSatfinite, values, codes))
    throw Error("backend", fmt::format("a cast to {}", f.name), "none");
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::uint32_t expected = encode(f, kNvidiaSatfinite, values[i]);
    if (codes[i] != expected)
      show(row.name, ++row.mismatches, std::bit_cast<std::uint32_t>(values[i]), codes[i], expected);
  }
  return row;
}

/// An instruction of the table, every input.
CheckRow check_narrow(const CastInstruction& cast, const NamedCast& kernel) {
  DeviceBuffer<std::uint16_t> codes(std::min(cast.inputs(), kChunk));
  return judge_cast(
      cast,
      [&](std::uint64_t first, std::uint64_t count) {
        kernel.launch(first, count, codes.data());
        return codes.copy_out(count);
      },
      kChunk);
}

CheckRow check_stochastic(const StochasticCast& cast, const NamedStochasticCast& kernel) {
  return judge_rounding(cast, [&](const std::vector<StochasticInput>& inputs) {
    std::vector<float> values;
    std::vector<std::uint32_t> random;
    for (const StochasticInput& input : inputs) {
      values.insert(values.end(), input.values.begin(), input.values.end());
      random.push_back(input.random);
    }
    const DeviceBuffer<float> x{std::span<const float>(values)};
    const DeviceBuffer<std::uint32_t> bits{std::span<const std::uint32_t>(random)};
    DeviceBuffer<std::uint32_t> codes(inputs.size());
    kernel.launch(x.data(), bits.data(), inputs.size(), codes.data());
    return codes.copy_out();
  });
}

/// Casts with stochastic rounding, which sm_100 alone has.
std::vector<Part> stochastic_cast_parts(const Chip& chip) {
  std::vector<Part> parts;
  if (chip.capability != 100) return parts;
  for (const StochasticCast& cast : stochastic_casts())
    for (const NamedStochasticCast& kernel : stochastic_cast_kernels())
      if (kernel.name == cast.name)
        parts.push_back({std::string(cast.name), [&cast, &kernel] {
                           return std::vector<CheckRow>{check_stochastic(cast, kernel)};
                         }});
  return parts;
}

/// The table's instructions that the chip has.
std::vector<Part> narrow_cast_parts(const Chip& chip) {
  std::vector<Part> parts;
  // Targets with "a" run on their own chip alone.
  if (chip.capability != 100 && chip.capability != 120) return parts;
  for (const CastInstruction& cast : narrow_casts())
    for (const NamedCast& kernel : narrow_cast_kernels())
      if (kernel.name == cast.name)
        parts.push_back({std::string(cast.name), [&cast, &kernel] {
                           return std::vector<CheckRow>{check_narrow(cast, kernel)};
                         }});
  return parts;
}

}  // namespace

std::vector<Part> cast_parts(const Chip& chip) {
  std::vector<Part> parts;
  // Conversions to and from FP8 came with sm_89.
  if (chip.capability < 89) return parts;
  for (const Fp8 type : {Fp8::e4m3, Fp8::e5m2})
    parts.push_back({fmt::format("casts to and from {}", format_of(type).name), [type] {
                       return std::vector<CheckRow>{check_from_float(type), check_from_half(type),
                                                    check_to_half(type),
                                                    check_backend(format_of(type))};
                     }});
  for (Part& part : narrow_cast_parts(chip)) parts.push_back(std::move(part));
  for (Part& part : stochastic_cast_parts(chip)) parts.push_back(std::move(part));
  return parts;
}

}  // namespace fp8lab::cuda
