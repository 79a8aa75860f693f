#include "tool/mismatches.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/vectors/reduce.hpp"
#include "fp8lab/vectors/replay.hpp"
#include "tool/pack_cases.hpp"

namespace fp8lab::cuda {
namespace {

constexpr std::array<const char*, kMismatchKinds> kKindNames{
    "with NaN",  "with infinity",    "in the sign of a zero",
    "with zero", "with a subnormal", "of finite outputs"};
constexpr std::size_t kReductionBudget = 2000;

}  // namespace

MismatchKind kind_of_mismatch(std::uint32_t chip, std::uint32_t expected) {
  const auto any = [&](auto predicate) {
    return predicate(std::bit_cast<float>(chip)) || predicate(std::bit_cast<float>(expected));
  };
  if (any([](float x) { return std::isnan(x); })) return MismatchKind::nan;
  if (any([](float x) { return std::isinf(x); })) return MismatchKind::infinity;
  if (any([](float x) { return x == 0.0F; }))
    return ((chip ^ expected) << 1) == 0 ? MismatchKind::zero_sign : MismatchKind::zero;
  return any([](float x) { return std::fpclassify(x) == FP_SUBNORMAL; }) ? MismatchKind::subnormal
                                                                         : MismatchKind::finite;
}

void Mismatches::add(std::uint32_t chip, std::uint32_t expected, int steps,
                     const std::function<VectorCase()>& inputs) {
  ++count_;
  const auto kind = static_cast<std::size_t>(kind_of_mismatch(chip, expected));
  First& first = first_[kind];
  const std::size_t file = steps > 1 ? 1 : 0;
  std::size_t& kept = kept_of_kind_[file][kind];
  if (++first.count > 1 && kept >= kMostKept) return;
  VectorCase one = inputs();
  one.d = chip;
  if (first.count == 1) {
    first.one = one;
    first.expected = expected;
    first.steps = steps;
  }
  if (kept >= kMostKept) return;
  ++kept;
  kept_[file].push_back(std::move(one));
}

std::string Mismatches::kinds() const {
  std::string text;
  for (std::size_t i = 0; i < kMismatchKinds; ++i) {
    if (first_[i].count == count_ && count_ > 0) return fmt::format("all {}", kKindNames[i]);
    if (first_[i].count > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", first_[i].count, kKindNames[i]);
  }
  return text;
}

void Mismatches::print(
    const std::function<std::uint32_t(const VectorCase&, int steps)>& run) const {
  const InstructionModel model = probe_.instruction();
  const auto expected_of = [&](const VectorCase& x) {
    return std::bit_cast<std::uint32_t>(result_of(model.accumulator, probe_, x));
  };
  for (std::size_t i = 0; i < kMismatchKinds; ++i) {
    const First& first = first_[i];
    if (first.count == 0) continue;
    const auto differs = [&](const VectorCase& x) {
      const std::uint32_t got = run(x, first.steps);
      const std::uint32_t expected = expected_of(x);
      return got != expected && static_cast<std::size_t>(kind_of_mismatch(got, expected)) == i;
    };
    VectorCase shown = first.one;
    std::string what = "does not differ if it is alone in a tile";
    if (differs(shown)) {
      const ReducedCase reduced =
          reduce_case(shown, probe_.a_format, probe_.b_format, differs, kReductionBudget);
      shown = reduced.smallest;
      shown.d = run(shown, first.steps);
      what = fmt::format("{} terms of {} left", live_terms(shown), shown.a.size());
    }
    const std::uint32_t expected = expected_of(shown);
    std::string terms;
    std::size_t more = 0;
    std::size_t told = 0;
    for (std::size_t k = 0; k < shown.a.size(); ++k) {
      if (shown.a[k] == 0 && shown.b[k] == 0) continue;
      if (++told > 4)
        ++more;
      else
        terms += fmt::format(" a[{}] {:02x} b[{}] {:02x}", k, shown.a[k], k, shown.b[k]);
    }
    if (more > 0) terms += fmt::format(" and {} more", more);
    fmt::print("  {} {} {}: the first, {}: the chip {:08x}, {} {:08x}\n", first.count,
               first.count == 1 ? "mismatch" : "mismatches", kKindNames[i], what, shown.d,
               model.name, expected);
    fmt::print("    c {:08x}{}\n", shown.c, terms);
  }
}

void Mismatches::write(const std::filesystem::path& folder,
                       const std::map<std::string, std::string>& header) const {
  for (const bool chained : {false, true}) {
    const std::vector<VectorCase>& rows = kept(chained);
    if (rows.empty()) continue;
    std::filesystem::create_directories(folder);
    VectorFile file{probe_.model,    probe_.a_format,
                    probe_.b_format, static_cast<int>(rows.front().a.size()),
                    header,          rows};
    file.scales = probe_.scales;
    file.header["instruction"] = probe_.name;
    file.header["executed"] = to_string(probe_.halves);
    const std::filesystem::path path =
        folder / fmt::format("{}{}.txt", probe_.name, chained ? ".chained" : "");
    std::ofstream out(path, std::ios::binary);
    write_vectors(out, file);
    out.close();
    if (!out) throw Error(fmt::format("{}: cannot be written", path.string()));
  }
}

}  // namespace fp8lab::cuda
