#include "fp8lab/attention/shape.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/core/threads.hpp"

namespace fp8lab {
namespace {

constexpr std::int64_t kMostTile = std::int64_t{1} << 40;
constexpr float kMostOffset = 100.0F;
constexpr std::int64_t kMostSplits = 256;  // FlashAttention-3's
constexpr std::array<std::string_view, 2> kTileOrders{"last_to_first", "first_to_last"};
constexpr std::array<std::string_view, 2> kRowSums{"columns", "quads"};

void validate_operand(std::string_view name, const AttentionOperand& operand) {
  const std::string shape =
      fmt::format("[{}, {}, {}]", operand.heads, operand.rows, operand.columns);
  require(operand.heads > 0 && operand.rows > 0 && operand.columns > 0, name,
          "[heads, rows, columns], all above 0", shape);
  require(format(operand.format).storage_bits == 8, name, "codes of an 8-bit format",
          format(operand.format).name);
  require(static_cast<std::int64_t>(operand.codes.size()) ==
              operand.heads * operand.rows * operand.columns,
          name, fmt::format("codes of {}", shape), counted(operand.codes.size(), "code"));
  require(operand.inverse_scales.empty() ||
              static_cast<std::int64_t>(operand.inverse_scales.size()) == operand.heads,
          fmt::format("{} inverse scales", name), fmt::format("none or {}", operand.heads),
          fmt::format("{}", operand.inverse_scales.size()));
}

void validate_model(std::string_view argument, const std::string& name, FormatId a, FormatId b) {
  const InstructionModel& model = find_instruction_model(name);
  const bool fits =
      model.standing == Standing::definition || (model.a_format == a && model.b_format == b);
  require(fits, argument,
          fmt::format("an instruction that reads {} and {}", format(a).name, format(b).name),
          fmt::format("{}, which reads {} and {}", name, format(model.a_format).name,
                      format(model.b_format).name));
}

}  // namespace

std::string_view to_string(TileOrder order) { return kTileOrders[static_cast<std::size_t>(order)]; }

std::string_view to_string(RowSum order) { return kRowSums[static_cast<std::size_t>(order)]; }

RowSum find_row_sum(std::string_view name) {
  return find_enumerator<RowSum>(kRowSums, "row_sum", name);
}

TileOrder find_tile_order(std::string_view name) {
  return find_enumerator<TileOrder>(kTileOrders, "tile_order", name);
}

SeenColumns seen_columns(const AttentionShape& shape, const AttentionOptions& options,
                         std::int64_t row) {
  const std::int64_t own = row + shape.n - shape.m;
  const std::int64_t right = options.causal ? 0 : options.window_right;
  SeenColumns seen{0, shape.n};
  if (right != kNoWindow) seen.end = std::clamp<std::int64_t>(own + 1 + right, 0, shape.n);
  if (options.window_left != kNoWindow)
    seen.begin = std::clamp<std::int64_t>(own - options.window_left, 0, seen.end);
  return seen;
}

AttentionShape attention_shape(const AttentionInputs& inputs) {
  return {inputs.q.heads,   inputs.q.heads / std::max<std::int64_t>(inputs.k.heads, 1),
          inputs.q.rows,    inputs.k.rows,
          inputs.q.columns, inputs.v.columns};
}

void validate(const AttentionInputs& inputs, const AttentionOptions& options) {
  validate_operand("Q", inputs.q);
  validate_operand("K", inputs.k);
  validate_operand("V", inputs.v);
  require(inputs.k.columns == inputs.q.columns, "K",
          fmt::format("[heads, n, d] with d = {}, as Q has", inputs.q.columns),
          fmt::format("d = {}", inputs.k.columns));
  require(inputs.v.rows == inputs.k.rows && inputs.v.heads == inputs.k.heads, "V",
          fmt::format("[heads, n, d_v] = [{}, {}, d_v], as K has", inputs.k.heads, inputs.k.rows),
          fmt::format("[{}, {}, {}]", inputs.v.heads, inputs.v.rows, inputs.v.columns));
  require(inputs.q.heads % inputs.k.heads == 0, "K",
          fmt::format("a number of heads that divides Q's {}", inputs.q.heads),
          fmt::format("{}", inputs.k.heads));
  validate_model("qk_model", options.qk_model, inputs.q.format, inputs.k.format);
  require(options.p_format == FormatId::e4m3fn || options.p_format == FormatId::e5m2, "p_format",
          "e4m3fn or e5m2", format(options.p_format).name);
  validate_model("pv_model", options.pv_model, options.p_format, inputs.v.format);
  require(options.q_tile > 0 && options.q_tile <= kMostTile, "q_tile",
          fmt::format("1 to {}", kMostTile), fmt::format("{}", options.q_tile));
  const int terms = find_instruction_model(options.pv_model).accumulator.terms;
  require(options.kv_tile > 0 && options.kv_tile <= kMostTile && options.kv_tile % terms == 0,
          "kv_tile",
          fmt::format("a multiple of {}'s {} terms, up to {}", options.pv_model, terms, kMostTile),
          fmt::format("{}", options.kv_tile));
  const auto finite = [](std::string_view name, float value) {
    require(std::isfinite(value) && value >= 0.0F, name, "a finite number >= 0",
            fmt::format("{}", value));
  };
  finite("softmax_scale", options.softmax_scale);
  // 2^p_offset is a binary32 number, and so is what it multiplies.
  require(std::abs(options.p_offset) <= kMostOffset, "p_offset",
          fmt::format("a number from -{0:g} to {0:g}", kMostOffset),
          fmt::format("{}", options.p_offset));
  finite("rescale_threshold", options.rescale_threshold);
  finite("soft_cap", options.soft_cap);
  require(options.sinks.empty() || std::ssize(options.sinks) == inputs.q.heads, "sinks",
          fmt::format("none, or one of each of Q's {} heads", inputs.q.heads),
          fmt::format("{}", options.sinks.size()));
  for (const float sink : options.sinks)
    require(std::isfinite(sink), "sinks", "finite numbers", fmt::format("{}", sink));
  require(options.splits >= 1 && options.splits <= kMostSplits, "splits",
          fmt::format("1 to {}", kMostSplits), fmt::format("{}", options.splits));
  const auto window = [](std::string_view name, std::int64_t value) {
    require(value >= kNoWindow && value <= kMostTile, name, "0 or more columns, or -1: all",
            fmt::format("{}", value));
  };
  window("window_left", options.window_left);
  window("window_right", options.window_right);
  require(!options.causal || options.window_right == kNoWindow, "window_right",
          "-1 with causal, which is a window_right of 0", fmt::format("{}", options.window_right));
}

CodeMatrix matrix_of(const AttentionOperand& operand, std::int64_t head, std::int64_t begin,
                     std::int64_t end, Major major) {
  const std::uint8_t* data = operand.codes.data() + (head * operand.rows + begin) * operand.columns;
  if (major == Major::rows)
    return {operand.format, data, end - begin, operand.columns, operand.columns, 1};
  return {operand.format, data, operand.columns, end - begin, 1, operand.columns};
}

float scale_of(const AttentionOperand& operand, std::int64_t head) {
  return operand.inverse_scales.empty() ? 1.0F
                                        : operand.inverse_scales[static_cast<std::size_t>(head)];
}

float softmax_scale(float given, std::int64_t d) {
  const FloatEnvironment environment;
  return given > 0.0F ? given : static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
}

float softmax_scale(const AttentionInputs& inputs, const AttentionOptions& options) {
  return softmax_scale(options.softmax_scale, inputs.q.columns);
}

float soft_cap_scale(const AttentionInputs& inputs, const AttentionOptions& options,
                     std::int64_t head) {
  const std::int64_t kv_head = head / attention_shape(inputs).group;
  return softmax_scale(inputs, options) / options.soft_cap *
         (scale_of(inputs.q, head) * scale_of(inputs.k, kv_head));
}

float scale_log2(const AttentionInputs& inputs, const AttentionOptions& options,
                 std::int64_t head) {
  if (options.soft_cap > 0.0F)
    return static_cast<float>(static_cast<double>(options.soft_cap) * std::numbers::log2e);
  const std::int64_t kv_head = head / attention_shape(inputs).group;
  const double to_base_two =
      static_cast<double>(softmax_scale(inputs, options)) * std::numbers::log2e;
  return static_cast<float>(to_base_two) * (scale_of(inputs.q, head) * scale_of(inputs.k, kv_head));
}

std::optional<std::string> instruction_for(const std::string& model, FormatId a, FormatId b) {
  const InstructionModel& own = find_instruction_model(model);
  if (own.standing == Standing::definition) return model;
  if (own.a_format == a && own.b_format == b) return model;
  for (const InstructionModel& known : instruction_models())
    if (known.accumulator == own.accumulator && known.a_format == a && known.b_format == b)
      return std::string(known.name);
  return std::nullopt;
}

int threads_of(const AttentionOptions& options) { return team_size(options.threads); }

}  // namespace fp8lab
