#include "fp8lab/verify/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/execution.hpp"
#include "fp8lab/scaling/cast_search.hpp"
#include "fp8lab/scaling/scale_rule.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/tensors/packed.hpp"
#include "fp8lab/tensors/slices.hpp"
#include "fp8lab/verify/activation_reach.hpp"
#include "fp8lab/verify/attempt.hpp"
#include "fp8lab/verify/budget_check.hpp"
#include "fp8lab/verify/cast_tiles.hpp"
#include "fp8lab/verify/element.hpp"
#include "fp8lab/verify/explain.hpp"
#include "fp8lab/verify/gates.hpp"
#include "fp8lab/verify/judge.hpp"
#include "fp8lab/verify/misplaced.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 22;  // elements read at a time

std::size_t width_of(FormatId id) { return static_cast<std::size_t>(format(id).bytes()); }

void require_row_major(std::string_view name, const TensorView& tensor) {
  require(!tensor.fortran_order || tensor.shape.size() < 2, name,
          "row-major order; save np.ascontiguousarray(x)", "Fortran order");
}

void require_output(const Operand& got, FormatId id, const std::vector<std::int64_t>& shape) {
  const TensorView& tensor = got.tensor();
  const ElementType expected = element_type_of(id);
  const bool is_codes = tensor.type == ElementType::u8 && element_bytes(expected) == 1;
  require(tensor.type == expected || is_codes, got.name(),
          fmt::format("{} elements; give their format with {}", to_string(expected),
                      argument("out_dtype")),
          to_string(tensor.type));
  require(tensor.shape == shape, got.name(), fmt::format("shape {}", shape_text(shape)),
          shape_text(tensor.shape));
}

std::string subject_of(const Product& product) {
  std::string text = fmt::format("{}, k = {}, promotion {}", product.model, product.problem.a.k,
                                 product.problem.promotion_interval);
  if (product.split.parts > 1)
    text += fmt::format(", split in {} ({}, {})", product.split.parts, to_string(product.split.cut),
                        to_string(product.split.order));
  if (!product.epilogue.empty()) text += fmt::format(", {}", describe(product.epilogue));
  return text;
}

bool passes(const VerifyReport& report) {
  if (report.scales && report.scales->wrong > 0) return false;
  switch (report.check.kind) {
    case Check::Kind::bitwise:
      return report.comparison.bitwise();
    case Check::Kind::gate:
      return report.gates[report.check.gate];
    case Check::Kind::budget:
      break;
  }
  return report.comparison.bitwise() ||
         (report.budget && report.budget->within == report.budget->checked);
}

void judge_gates(VerifyReport& report) {
  for (std::size_t i = 0; i < gates().size(); ++i)
    report.gates.push_back(gate_passes(i, report.comparison));
}

std::vector<Check> checks_to_try(const VerifyOptions& options, bool with_budget) {
  if (!options.fault_matrix) return {options.check};
  std::vector<Check> checks;
  for (const Check& check : all_checks())
    if (with_budget || check.kind != Check::Kind::budget) checks.push_back(check);
  return checks;
}

/// Sets the verdict; `faults` tries the checks it is given.
template <typename Faults>
void decide(VerifyReport& report, const VerifyOptions& options, bool with_budget,
            const Faults& faults) {
  const bool passed = passes(report);
  report.verdict = passed ? Verdict::pass : Verdict::mismatch;
  if ((!passed && !options.fault_matrix) || !options.judge_power) return;
  report.power = faults(checks_to_try(options, with_budget));
  const std::vector<Check>& checks = report.power->checks;
  for (std::size_t i = 0; i < checks.size(); ++i)
    if (checks[i].name() == report.check.name()) report.power_of_check = i;
  if (passed && !report.power->has_power(report.power_of_check)) report.verdict = Verdict::no_power;
}

VerifyReport new_report(const VerifyOptions& options, FormatId output, std::int64_t rows,
                        std::int64_t columns) {
  VerifyReport report;
  report.check = options.check;
  report.output = output;
  report.rows = rows;
  report.columns = columns;
  report.map = make_map(rows, columns);
  return report;
}

/// A tensor as a matrix: the last dimension is a row's length.
std::array<std::int64_t, 2> matrix_shape(const TensorView& tensor) {
  const std::int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  std::int64_t rows = 1;
  for (std::size_t d = 0; d + 1 < tensor.shape.size(); ++d) rows *= tensor.shape[d];
  return {rows, columns};
}

void add_elements(VerifyReport& report) {
  const CodeComparison& c = report.comparison;
  if (!c.first) return;
  const auto add = [&](std::string_view which, const CodeMismatch& mismatch) {
    ElementReport element;
    element.which = which;
    element.mismatch = mismatch;
    element.row = mismatch.index / std::max<std::int64_t>(report.columns, 1);
    element.column = mismatch.index % std::max<std::int64_t>(report.columns, 1);
    report.elements.push_back(element);
  };
  add("first", *c.first);
  if (c.worst->index != c.first->index) add("worst", *c.worst);
}

/// The scale of every element of a dump.
class DumpScale {
 public:
  DumpScale(const Operand* scale, const std::optional<ScaleTiles>& tiles, std::int64_t rows,
            std::int64_t columns)
      : columns_(columns) {
    if (scale == nullptr) {
      values_ = {1.0F};
      return;
    }
    const TensorView& tensor = scale->tensor();
    require_scale_type(scale->name(), tensor.type);
    tiles_ = checked_tiles(scale->name(), tensor.shape, tiles, rows, columns);
    values_ = to_float(tensor);
    grid_columns_ = grid_shape(tensor.shape)[1];
  }

  /// The shape of a tile, without zeros, and the grid of scales.
  [[nodiscard]] ScaleTiles tiles(std::int64_t rows) const {
    return values_.size() == 1 ? ScaleTiles{rows, columns_} : tiles_;
  }
  [[nodiscard]] const std::vector<float>& values() const { return values_; }
  [[nodiscard]] float at(std::size_t index) const {
    if (values_.size() == 1) return values_[0];
    const auto i = static_cast<std::int64_t>(index);
    return values_[static_cast<std::size_t>(i / columns_ / tiles_.rows * grid_columns_ +
                                            i % columns_ / tiles_.columns)];
  }

 private:
  std::vector<float> values_;
  std::int64_t columns_;
  std::int64_t grid_columns_ = 1;
  ScaleTiles tiles_;
};

/// Elements [begin, begin + count) as floats.
std::vector<float> floats_of(const TensorView& tensor, std::size_t begin, std::size_t count) {
  const std::size_t width = element_bytes(tensor.type);
  return to_float({tensor.type,
                   {static_cast<std::int64_t>(count)},
                   tensor.bytes.subspan(begin * width, count * width),
                   false});
}

/// What is kept of a dump for the diagnosis and for the power of its check.
struct DumpSample {
  std::vector<float> x;
  std::vector<float> scale;
  std::vector<std::byte> got;
  std::size_t wrong = 0;

  void add(float value, float by, std::byte code) {
    x.push_back(value);
    scale.push_back(by);
    got.push_back(code);
  }
};

constexpr std::size_t kMostWrong = 16384;
constexpr std::size_t kMostRight = 32768;
constexpr std::size_t kMostHeld = std::size_t{1} << 26;  // elements whose places are looked at

/// The elements of a cast in these rows and columns, known mistakes tried on them.
Diagnosis diagnose_part(const TiledCast& cast, const Sample& part) {
  std::vector<float> x;
  std::vector<float> scale;
  std::vector<std::byte> got;
  for (const std::int64_t row : part.rows)
    for (const std::int64_t column : part.columns) {
      const auto at = static_cast<std::size_t>(row * cast.columns + column);
      x.push_back(cast.x[at]);
      scale.push_back(cast.scale_at(row, column));
      got.push_back(cast.got[at]);
    }
  return diagnose_cast(cast.spec, x, scale, got);
}

/// Right codes in wrong places, of rows that are wrong and of some others.
Diagnosis diagnose_places(FormatId id, const TiledCast& cast, const MismatchMap& map) {
  constexpr std::int64_t kRows = 12;
  constexpr std::int64_t kColumns = 256;
  std::set<std::int64_t> rows;
  for (std::int64_t tile = 0; tile < map.rows; ++tile) {
    const auto* first = &map.counts[static_cast<std::size_t>(tile * map.columns)];
    if (std::any_of(first, first + map.columns, [](auto count) { return count > 0; }))
      for (const std::int64_t row :
           spread(std::min(map.tile_rows, cast.rows - tile * map.tile_rows), kRows))
        rows.insert(tile * map.tile_rows + row);
  }
  const std::vector<std::int64_t> all(rows.begin(), rows.end());
  std::set<std::int64_t> chosen;
  for (const std::int64_t i : spread(std::ssize(all), kRows))
    chosen.insert(all[static_cast<std::size_t>(i)]);
  for (const std::int64_t row : spread(cast.rows, 4)) chosen.insert(row);
  const Sample sample{{chosen.begin(), chosen.end()}, spread(cast.columns, kColumns)};
  std::vector<std::uint32_t> golden;
  std::vector<std::uint32_t> got;
  for (const std::int64_t row : sample.rows)
    for (const std::int64_t column : sample.columns) {
      const auto at = static_cast<std::size_t>(row * cast.columns + column);
      golden.push_back(code_at(id, cast.golden, at));
      got.push_back(code_at(id, cast.got, at));
    }
  Judge judge({id, cast.spec.policy}, std::move(golden), std::move(got));
  try_misplacements({id, cast.rows, cast.columns, cast.golden, cast.got}, sample, judge);
  return judge.finish();
}

/// Where a cast is wrong, and why: known mistakes in all of it, right codes in wrong places, what
/// its tiles have in common, known mistakes in the wrong regions alone; the first that says it.
void look_at_tiles(VerifyReport& report, const TiledCast& cast) {
  constexpr std::int64_t kSide = 256;  // rows, and columns, that known mistakes are tried on
  report.regions = find_regions(report.output, cast.golden, cast.got, report.rows, report.columns,
                                report.map, WrongElements(report.output, cast.golden, cast.got));
  for (Region& region : report.regions)
    if (region.content == RegionContent::other)
      region.diagnosis = diagnose_part(cast, sample_of(region, kSide, kSide));
  std::uint64_t tried = report.diagnosis ? report.diagnosis->tried : 0;
  const auto take = [&](std::optional<Diagnosis> found) {
    if (!found) return;
    tried += found->tried;
    const bool better = !found->causes.empty() || !found->measured.empty();
    if (better || !report.diagnosis) report.diagnosis = std::move(found);
    report.diagnosis->tried = tried;
  };
  const auto open = [&] { return !report.diagnosis || says_little(*report.diagnosis); };
  if (open()) take(diagnose_places(report.output, cast, report.map));
  if (open()) take(diagnose_tiles(cast));
  if (open())
    if (std::optional<Diagnosis> found = diagnosis_of_regions(report))
      report.diagnosis = std::move(found);
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  constexpr std::array<std::string_view, 3> kNames{"pass", "mismatch", "no power"};
  return kNames[static_cast<std::size_t>(verdict)];
}

VerifyReport verify(const Product& product, const Operand& got, const VerifyOptions& options) {
  const FloatEnvironment environment;
  require_output(got, product.output.format, {product.rows(), product.columns()});
  Execution ran;
  const Finished finished = compute_finished(product, true, options.threads, ran, options.progress);
  const std::vector<std::byte> golden =
      cast_output(finished.values, product.output, options.threads);
  const HeldTensor dense = row_major(got.tensor());
  std::span<const std::byte> codes = dense.view.bytes;
  tell(options.progress, "bits and distances", 0.0);
  WithinReach reached;
  if (!finished.reach.empty()) {
    reached = within_reach(product.output, finished, golden, codes);
    codes = reached.codes;
  }
  VerifyReport report =
      new_report(options, product.output.format, product.rows(), product.columns());
  report.within_activation = reached.replaced;
  report.subject = subject_of(product);
  report.comparison = compare_codes(format(report.output), golden, codes,
                                    {.tolerances = gate_tolerances(report.output),
                                     .map = &report.map,
                                     .threads = options.threads});
  report.non_finite = count_non_finite(product);
  report.non_finite.push_back({"the golden output", count_non_finite(report.output, golden)});
  report.non_finite.push_back({got.name(), count_non_finite(report.output, codes)});
  judge_gates(report);
  if (!report.comparison.bitwise()) {
    tell(options.progress, "causes", 0.0);
    const std::vector<std::int64_t> mismatches =
        some_mismatches(report.output, golden, codes,
                        report.comparison.bit_mismatches + report.comparison.nan_payloads);
    report.budget = check_budgets(product, {golden, codes}, mismatches,
                                  options.check.kind == Check::Kind::budget, options.threads);
    const std::vector<WrongProduct> more = more_mistakes(options);
    report.regions = look_at_regions(product, golden, codes, options, more, report);
    tell(options.progress, "causes", 0.5);
    // Causes are sought in the codes as they are: those within reach of an activation are right,
    // but not what another mistake makes of them.
    diagnose_what_counts(product, golden, dense.view.bytes, mismatches, options, more, report);
    add_elements(report);
    for (ElementReport& element : report.elements) explain_element(product, element);
  }
  decide(report, options, true, [&](const std::vector<Check>& checks) {
    tell(options.progress, "the power of the check", 0.0);
    return power(product, checks, options.threads, more_mistakes(options));
  });
  return report;
}

VerifyReport verify(const Operand& golden, const Operand& got, const VerifyOptions& options) {
  const FloatEnvironment environment;
  const TensorView& expected = golden.tensor();
  const std::optional<FormatId> id = format_of(expected.type);
  require(id.has_value(), golden.name(),
          fmt::format("f32, f16, bf16 or FP8 elements ({})", argument("out_dtype")),
          to_string(expected.type));
  require(options.check.kind != Check::Kind::budget, "check",
          "one that needs no inputs, with a golden file", "budget");
  require_row_major(golden.name(), expected);
  require_output(got, *id, expected.shape);
  require_row_major(got.name(), got.tensor());
  const auto [rows, columns] = matrix_shape(expected);
  VerifyReport report = new_report(options, *id, rows, columns);
  report.subject = golden.name();
  CodeComparer comparer(
      format(*id),
      {.tolerances = gate_tolerances(*id), .map = &report.map, .threads = options.threads});
  const std::size_t width = width_of(*id);
  const std::size_t step = kPart * width;
  const std::vector<std::int64_t> places = spread(expected.size(), kPowerSample);
  auto place = places.begin();
  std::vector<std::byte> sample;
  NonFinite in_golden;
  NonFinite in_got;
  for (std::size_t begin = 0; begin < expected.bytes.size(); begin += step) {
    const std::size_t size = std::min(step, expected.bytes.size() - begin);
    for (; place != places.end(); ++place) {
      const std::size_t at = static_cast<std::size_t>(*place) * width;
      if (at >= begin + size) break;
      sample.insert(sample.end(), &expected.bytes[at], &expected.bytes[at] + width);
    }
    comparer.add(expected.bytes.subspan(begin, size), got.tensor().bytes.subspan(begin, size));
    in_golden += count_non_finite(*id, expected.bytes.subspan(begin, size));
    in_got += count_non_finite(*id, got.tensor().bytes.subspan(begin, size));
    golden.release(expected.bytes.subspan(begin, size));
    got.release(got.tensor().bytes.subspan(begin, size));
  }
  report.comparison = comparer.finish();
  report.non_finite = {{golden.name(), in_golden}, {got.name(), in_got}};
  judge_gates(report);
  add_elements(report);
  decide(report, options, false, [&](const std::vector<Check>& checks) {
    return power(default_output(*id), sample, checks, options.threads);
  });
  return report;
}

VerifyReport verify_cast(const CastSpec& spec, const Operand& x, const Operand* scale,
                         const Operand& got, const VerifyOptions& options) {
  const FloatEnvironment environment;
  const TensorView& input = x.tensor();
  require(is_float(input.type), x.name(), "floats to cast", to_string(input.type));
  require(options.check.kind != Check::Kind::budget, "check", "bitwise or a gate, for a cast",
          "budget");
  require(format(spec.format).storage_bits == 8, "cast", "an 8-bit format such as e4m3fn",
          format(spec.format).name);
  require_row_major(x.name(), input);
  require_output(got, spec.format, input.shape);
  require_row_major(got.name(), got.tensor());
  if (format(spec.format).is_padded())
    require_narrow_codes(spec.format, got.tensor().bytes, got.name());
  const auto [rows, columns] = matrix_shape(input);
  VerifyReport report = new_report(options, spec.format, rows, columns);
  report.subject = fmt::format("cast of {} to {}", x.name(), format(spec.format).name);
  const DumpScale scales(scale, options.scale_tiles, rows, columns);
  const OutputCast output{spec.format, spec.policy};
  CodeComparer comparer(
      format(spec.format),
      {.tolerances = gate_tolerances(spec.format), .map = &report.map, .threads = options.threads});
  DumpSample sample;
  NonFinite in_x;
  NonFinite in_golden;
  NonFinite in_got;
  const std::span<const std::byte> codes = got.tensor().bytes;
  const std::size_t stride = std::max<std::size_t>(1, codes.size() / kMostRight);
  for (std::size_t begin = 0; begin < codes.size(); begin += kPart) {
    const std::size_t size = std::min(kPart, codes.size() - begin);
    const std::vector<float> values = floats_of(input, begin, size);
    std::vector<float> scaled(size);
    for (std::size_t i = 0; i < size; ++i) scaled[i] = canonical(values[i] * scales.at(begin + i));
    const std::vector<std::byte> golden = cast_output(scaled, output, options.threads);
    const std::span<const std::byte> part = codes.subspan(begin, size);
    comparer.add(golden, part);
    in_x += count_non_finite(values);
    in_golden += count_non_finite(spec.format, golden);
    in_got += count_non_finite(spec.format, part);
    for (std::size_t i = 0; i < size; ++i) {
      const bool wrong = golden[i] != part[i] && sample.wrong < kMostWrong;
      if (!wrong && (begin + i) % stride != 0) continue;
      sample.wrong += wrong ? 1 : 0;
      sample.add(values[i], scales.at(begin + i), part[i]);
    }
    const std::size_t width = element_bytes(input.type);
    x.release(input.bytes.subspan(begin * width, size * width));
    got.release(part);
  }
  report.comparison = comparer.finish();
  report.non_finite = {{x.name(), in_x}, {"the golden cast", in_golden}, {got.name(), in_got}};
  judge_gates(report);
  add_elements(report);
  if (!report.comparison.bitwise()) {
    report.diagnosis = diagnose_cast(spec, sample.x, sample.scale, sample.got);
    if (codes.size() <= kMostHeld && columns > 0) {
      const std::vector<float> values = floats_of(input, 0, codes.size());
      std::vector<float> scaled(values.size());
      for (std::size_t i = 0; i < scaled.size(); ++i)
        scaled[i] = canonical(values[i] * scales.at(i));
      const std::vector<std::byte> golden = cast_output(scaled, output, options.threads);
      look_at_tiles(report, {spec, values, rows, columns, scales.tiles(rows), scales.values(),
                             golden, codes});
    }
  }
  decide(report, options, false, [&](const std::vector<Check>& checks) {
    std::vector<float> scaled(sample.x.size());
    for (std::size_t i = 0; i < scaled.size(); ++i)
      scaled[i] = canonical(sample.x[i] * sample.scale[i]);
    return power_of_cast(output, scaled, checks, options.threads);
  });
  return report;
}

namespace {

/// The stored scales of a quantizer as factors of codes; empty without a file.
std::vector<float> stored_scales(const Operand* scales, const QuantizedTensor& right,
                                 bool multipliers) {
  if (scales == nullptr) return {};
  const TensorView& tensor = scales->tensor();
  require_scale_type(scales->name(), tensor.type);
  (void)checked_tiles(scales->name(), tensor.shape, ScaleTiles{right.row_block, right.k_block},
                      right.rows, right.k);
  std::vector<float> values = to_float(tensor);
  if (multipliers)
    for (float& x : values) x = 1.0F / x;
  return values;
}

/// The codes that the recipe gives under these scales of tiles.
std::vector<std::byte> codes_under(const Recipe& recipe, const QuantizedTensor& like,
                                   std::span<const float> x, std::span<const float> inverse,
                                   float level) {
  std::vector<std::byte> codes(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::size_t tile = like.tile_of(at / like.k, at % like.k);
    const float total = inverse[tile] * level;
    const float value = is_two_level(recipe.rule)
                            ? x[i] / total
                            : scaled_element(recipe.rule, x[i], {1.0F / total, total});
    codes[i] = static_cast<std::byte>(encode(format(recipe.format), recipe.policy, value));
  }
  return codes;
}

/// What the stored scales are, and whether the codes are those under them.
ScaleComparison compare_scales(const Recipe& recipe, const QuantizedTensor& right,
                               std::span<const float> x, const std::vector<float>& stored,
                               std::optional<float> level, std::span<const std::byte> got) {
  ScaleComparison result;
  result.compared = right.inverse_scales.size();
  for (std::size_t i = 0; i < stored.size(); ++i)
    result.wrong += same_scale(stored[i], right.inverse_scales[i]) ? 0 : 1;
  result.lines = describe_scales(right.inverse_scales, stored, right.tile_columns());
  const float upper = level.value_or(right.tensor_inverse_scale);
  if (level && *level != right.tensor_inverse_scale) {
    ++result.wrong;
    result.lines.push_back(fmt::format("the tensor scale is {:.9g} (right: {:.9g})", *level,
                                       right.tensor_inverse_scale));
  }
  if (result.wrong == 0) return result;
  const std::vector<std::byte> codes = codes_under(recipe, right, x, stored, upper);
  std::size_t looked_at = 0;
  std::size_t other = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::size_t tile = right.tile_of(at / right.k, at % right.k);
    if (stored[tile] == right.inverse_scales[tile] && upper == right.tensor_inverse_scale) continue;
    ++looked_at;
    other += codes[i] != got[i] ? 1 : 0;
  }
  const double share = static_cast<double>(other) / static_cast<double>(looked_at);
  result.lines.emplace_back(
      other == 0     ? "all codes of these tiles are right under the stored scales"
      : share < 0.01 ? "nearly all codes of these tiles are right under the stored scales"
                     : "the codes of these tiles do not follow the stored scales");
  return result;
}

/// The recipes of other systems whose codes and scales these are.
std::string other_recipes(const QuantizedTensor& right, const FloatMatrix& x,
                          const std::vector<float>& stored, float level,
                          std::span<const std::byte> got) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 22;
  if (stored.empty() || x.rows * x.k > kMostElements) return "";
  std::vector<float> total = stored;
  for (float& scale : total) scale *= level;
  const std::span<const std::uint8_t> codes{reinterpret_cast<const std::uint8_t*>(got.data()),
                                            got.size()};
  const auto found = attempt([&] { return search_cast({x, right.format, codes, total}, 1); });
  std::string names;
  int listed = 0;
  if (found)
    for (const RecipeMatch& match : found->recipes)
      if (match.exact() && listed++ < 3)
        names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", match.recipe,
                             to_string(match.role));
  return names;
}

}  // namespace

VerifyReport verify_quantizer(const Recipe& recipe, const std::string& label, const Operand& x,
                              const Operand* scales, const Operand& got,
                              const VerifyOptions& options, std::optional<float> tensor_scale,
                              bool multipliers) {
  const FloatEnvironment environment;
  const TensorView& input = x.tensor();
  require(recipe.source == ScaleSource::current, "recipe", "one with the scale of its own tensor",
          to_string(recipe.source));
  require(options.check.kind != Check::Kind::budget, "check", "bitwise or a gate, for a cast",
          "budget");
  require_row_major(x.name(), input);
  require_row_major(got.name(), got.tensor());
  require_output(got, recipe.format, input.shape);
  if (format(recipe.format).is_padded())
    require_narrow_codes(recipe.format, got.tensor().bytes, got.name());
  const auto [rows, columns] = matrix_shape(input);
  const std::span<const std::byte> codes = got.tensor().bytes;
  const std::vector<float> values = floats_of(input, 0, codes.size());
  const FloatMatrix matrix{values, rows, columns};
  const QuantizedTensor right = Quantizer(recipe).quantize(matrix, false, options.threads);
  const std::vector<float> stored = stored_scales(scales, right, multipliers);
  const auto* first = reinterpret_cast<const std::byte*>(right.codes.data());
  const std::span<const std::byte> golden{first, right.codes.size()};

  VerifyReport report = new_report(options, recipe.format, rows, columns);
  report.subject =
      fmt::format("{} under {}, tiles of {} x {}", x.name(), label, right.row_block, right.k_block);
  report.comparison = compare_codes(format(recipe.format), golden, codes,
                                    {.tolerances = gate_tolerances(recipe.format),
                                     .map = &report.map,
                                     .threads = options.threads});
  report.non_finite = {{x.name(), count_non_finite(values)},
                       {"the golden cast", count_non_finite(recipe.format, golden)},
                       {got.name(), count_non_finite(recipe.format, codes)}};
  if (!stored.empty())
    report.scales = compare_scales(recipe, right, values, stored, tensor_scale, codes);
  judge_gates(report);
  add_elements(report);
  std::vector<float> multiply;
  for (std::size_t i = 0; i < right.inverse_scales.size(); ++i)
    multiply.push_back(1.0F / right.total_inverse_scale(i));
  if (!report.comparison.bitwise())
    look_at_tiles(report, {{recipe.format, recipe.policy},
                           values,
                           rows,
                           columns,
                           ScaleTiles{right.row_block, right.k_block},
                           multiply,
                           golden,
                           codes});
  if (!passes(report)) {
    const float level = tensor_scale.value_or(right.tensor_inverse_scale);
    const std::string others = other_recipes(right, matrix, stored, level, codes);
    if (!others.empty()) report.scales->lines.push_back("codes and scales are those of " + others);
  }
  decide(report, options, false, [&, columns = columns](const std::vector<Check>& checks) {
    std::vector<float> scaled;
    for (const std::int64_t i : spread(std::ssize(values), kPowerSample)) {
      const std::size_t tile = right.tile_of(i / columns, i % columns);
      scaled.push_back(canonical(values[static_cast<std::size_t>(i)] * multiply[tile]));
    }
    return power_of_cast({recipe.format, recipe.policy}, scaled, checks, options.threads);
  });
  return report;
}

}  // namespace fp8lab
