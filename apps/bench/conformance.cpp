#include "apps/bench/conformance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "apps/bench/cast_baselines.hpp"
#include "fp8lab/cast/encode.hpp"

namespace fp8lab::cli {
namespace {

constexpr std::size_t kChunk = 4096;
using Codes = std::span<std::uint8_t>;
using Row = CastBaseline;

enum Kind : std::size_t { kNan, kInfinite, kAboveMax, kNormal, kBelowNormal, kKinds };
constexpr std::array<const char*, kKinds> kKindNames{"nan", "infinite", "above_max", "normal",
                                                     "below_normal"};

struct Differences {
  std::array<std::uint64_t, kKinds> wrong{};
  std::uint64_t total = 0;
  std::uint32_t input = 0;
  std::uint8_t right = 0;
  std::uint8_t got = 0;

  void operator+=(const Differences& other) {
    if (other.total > 0 && (total == 0 || other.input < input)) {
      input = other.input;
      right = other.right;
      got = other.got;
    }
    total += other.total;
    for (std::size_t kind = 0; kind < kKinds; ++kind) wrong[kind] += other.wrong[kind];
  }
};

Kind kind_of(const Format& f, float x) {
  const double magnitude = std::fabs(static_cast<double>(x));
  if (std::isnan(x)) return kNan;
  if (std::isinf(x)) return kInfinite;
  if (magnitude > f.max_finite()) return kAboveMax;
  return magnitude < f.min_normal() ? kBelowNormal : kNormal;
}

Differences compare(const Row& row, std::uint32_t first) {
  const EncodeOptions options{.format = row.format,
                              .policy = find_cast_profile(row.profile).policy};
  std::array<float, kChunk> in;
  std::array<std::uint8_t, kChunk> ours;
  std::array<std::uint8_t, kChunk> theirs;
  for (std::uint32_t i = 0; i < kChunk; ++i) in[i] = std::bit_cast<float>(first + i);
  encode(in, ours, options);
  row.cast(in, theirs);
  Differences differences;
  if (ours == theirs) return differences;
  for (std::size_t i = 0; i < kChunk; ++i) {
    if (ours[i] == theirs[i]) continue;
    if (differences.total++ == 0) {
      differences.input = std::bit_cast<std::uint32_t>(in[i]);
      differences.right = ours[i];
      differences.got = theirs[i];
    }
    ++differences.wrong[kind_of(format(row.format), in[i])];
  }
  return differences;
}

/// One chunk in `share` of all inputs, from 0 on.
Differences compare_all(const Row& row, int threads, std::uint32_t share) {
  constexpr std::uint32_t kChunks = (1u << 31) / kChunk * 2;
  Differences all;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 256)
  for (std::uint32_t i = 0; i <= (kChunks - 1) / share; ++i) {
    const Differences part = compare(row, i * share * static_cast<std::uint32_t>(kChunk));
    if (part.total == 0) continue;
#pragma omp critical(fp8lab_conformance)
    all += part;
  }
  return all;
}

/// Rounds to FP16 and again to FP8: how oneDNN 3 and libxsmm convert, as far as rounding goes.
Row through_half(FormatId id) {
  const CastPolicy policy = kMlDtypes;
  return {"double rounding through FP16 (our model of oneDNN, libxsmm)", id, "ml_dtypes",
          [=](std::span<const float> in, Codes out) {
            std::array<std::uint16_t, kChunk> half;
            encode(in, half, {.format = FormatId::f16, .policy = policy});
            encode(half, FormatId::f16, out, {.format = id, .policy = policy});
          }};
}

std::string inputs_text(std::uint32_t share) {
  return share == 1 ? "all 2^32 inputs" : fmt::format("one in {} of all 2^32 inputs", share);
}

std::vector<Row> baselines() {
  std::vector<Row> rows = cast_baselines();
  rows.push_back(through_half(FormatId::e4m3fn));
  rows.push_back(through_half(FormatId::e5m2));
  // Where profiles that all follow the specification still differ from one another.
  const auto other = [](FormatId id, const std::string& name, std::string profile) {
    return Row{name + " instead", id, std::move(profile),
               [=](std::span<const float> in, Codes out) {
                 encode(in, out, {.format = id, .policy = find_cast_profile(name).policy});
               }};
  };
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2}) {
    rows.push_back(other(id, "nvidia_nosat", "nvidia_satfinite"));
    rows.push_back(other(id, "ml_dtypes", "nvidia_nosat"));
    rows.push_back(other(id, "ocp_saturating", "nvidia_satfinite"));
    rows.push_back(other(id, "flush", "nvidia_satfinite"));
  }
  return rows;
}

}  // namespace

nlohmann::json conformance(int threads, std::uint32_t share) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : baselines()) {
    fmt::print(stderr, "{}: {}, {} against {}\n", inputs_text(share), row.name,
               format(row.format).name, row.profile);
    const Differences found = compare_all(row, threads, share);
    nlohmann::json entry{{"baseline", row.name},
                         {"format", format(row.format).name},
                         {"profile", row.profile},
                         {"different", found.total}};
    for (std::size_t kind = 0; kind < kKinds; ++kind) entry[kKindNames[kind]] = found.wrong[kind];
    if (found.total > 0)
      entry["first"] = {{"input", fmt::format("0x{:08x}", found.input)},
                        {"expected", fmt::format("0x{:02x}", found.right)},
                        {"got", fmt::format("0x{:02x}", found.got)}};
    rows.push_back(std::move(entry));
  }
  return {{"verified", true}, {"share", share}, {"conformance", rows}};
}

void print_conformance(const nlohmann::json& result) {
  fmt::print("codes that differ from the library's over {}, by kind of input\n",
             inputs_text(result["share"].get<std::uint32_t>()));
  for (const nlohmann::json& row : result["conformance"]) {
    fmt::print("{}, {}, against {}: {}", row["baseline"].get<std::string>(),
               row["format"].get<std::string>(), row["profile"].get<std::string>(),
               row["different"].get<std::uint64_t>());
    for (const char* kind : kKindNames)
      if (row[kind].get<std::uint64_t>() > 0)
        fmt::print(", {} {}", kind, row[kind].get<std::uint64_t>());
    if (row.contains("first"))
      fmt::print("; first {} expected {} got {}", row["first"]["input"].get<std::string>(),
                 row["first"]["expected"].get<std::string>(),
                 row["first"]["got"].get<std::string>());
    fmt::print("\n");
  }
}

}  // namespace fp8lab::cli
