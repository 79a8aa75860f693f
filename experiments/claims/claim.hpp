#pragma once
// The field's claims about FP8 as code: each is measured anew, and its verdict
// follows from the measured values by a stated criterion. `fp8lab claims`
// prints them. One source file a group; a group adds itself in registry.cpp.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/experiment/experiment.hpp"

namespace fp8lab::experiments {

/// The documents whose claims these are.
inline constexpr std::string_view kTutorial = "naive-FP8 tutorial";
inline constexpr std::string_view kGuide = "FP8 guide";
inline constexpr std::string_view kSummary = "FP8-LM summary";
inline constexpr std::string_view kFactoryPage = "LLaMA-Factory page";

enum class Verdict : std::uint8_t {
  holds,
  holds_with_correction,
  does_not_hold,
  cannot_tell,  ///< the size or the seeds at hand decide nothing
};
std::string_view to_string(Verdict verdict);

/// A measured number with its name (snake_case) and unit ("1" for a ratio).
struct MeasuredValue {
  std::string name;
  std::string unit;
  double value = 0.0;
};

using Values = std::span<const MeasuredValue>;

struct Measurement {
  std::string figure;  ///< the measured figures as a sentence
  std::vector<MeasuredValue> values;
  Verdict verdict = Verdict::cannot_tell;  ///< set by `measure` from the values
};

/// What a verdict rests on.
enum class Basis : std::uint8_t {
  measured,    ///< computed here, from data or from a listing run as it is written
  recorded,    ///< what an installed system did, kept in recorded.inc and checked against it
  by_reading,  ///< what a paper or a system's source says, as this library has it; not run here
  arithmetic,  ///< counts and the definition of formats
};
std::string_view to_string(Basis basis);

/// The value called `name`. Throws `Error` where there is none.
double value_of(Values values, std::string_view name);

/// What a measurement may depend on; results do not depend on `threads`, nor on a `backend` that
/// agrees with the emulator.
struct ClaimContext {
  std::uint64_t seed = 1;
  int threads = 1;
  Backend backend{};
};

struct Claim {
  std::string_view id;         ///< a letter of its group and a number, as "F2a"
  std::string_view source;     ///< the document that makes the claim
  std::string_view statement;  ///< the claim in our words
  std::string_view setup;      ///< what is measured, on what
  std::string_view criterion;  ///< when it holds, when with a correction
  Measurement (*measure)(const ClaimContext& context);
  /// The verdict from the values alone: what anyone can do again from the table of values.
  Verdict (*judge)(Values values);
  Basis basis = Basis::measured;
  int line = 0;              ///< of the source's text, one paragraph or line of code a line
  std::string_view words{};  ///< what the source says there; "…" leaves words out
};

/// The words of a source on which a claim rests (docs/sources.md names the sources).
struct Quotation {
  std::string_view id;
  int line = 0;
  std::string_view words;
};
/// Throws `Error` where no words of the claim are quoted.
const Quotation& find_quotation(std::string_view id);

/// Every claim, group by group.
const std::vector<Claim>& all_claims();
/// Throws `Error` that lists the known ids.
const Claim& find_claim(std::string_view id);

/// Measures a claim and judges its values. Throws `Error` if a value came out NaN or infinite,
/// since no verdict can rest on it.
Measurement measure(const Claim& claim, const ClaimContext& context);

struct MeasuredClaim {
  const Claim* claim = nullptr;
  Measurement measurement;
};

/// What a run leaves of measured claims: tables of verdicts and of figures, how many hold, and
/// those that do not.
Results claim_results(const std::vector<MeasuredClaim>& measured);

}  // namespace fp8lab::experiments
