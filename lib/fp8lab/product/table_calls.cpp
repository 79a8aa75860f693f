#include "fp8lab/product/table_calls.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/product/calls.hpp"
#include "fp8lab/scaling/presets.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view kEnding = ".csv";
constexpr std::string_view kForm = "FILE.csv:fast or FILE.csv:slow, then ,FIELD=VALUE";

/// The values that candidates have in a field, each once.
std::vector<std::string> values_of(const std::vector<CallModel>& fitting, std::size_t field) {
  std::vector<std::string> values;
  for (const CallModel& model : fitting) {
    std::string value = fields_of(model)[field].second;
    if (std::ranges::count(values, value) == 0) values.push_back(std::move(value));
  }
  return values;
}

std::size_t find_field(const std::string& name) {
  const auto fields = fields_of(CallModel{});
  std::vector<std::string_view> names{"output"};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].first == name) return i;
    names.push_back(fields[i].first);
  }
  throw Error("call", fmt::format("a field of {}", fmt::join(names, ", ")), name);
}

void require_one_scale(std::string_view name, const std::optional<TensorView>& scales,
                       const std::optional<InverseScales>& read) {
  const std::size_t count = read     ? read->values.size()
                            : scales ? static_cast<std::size_t>(scales->size())
                                     : 1;
  require(count <= 1, name, "one scale, as the calls of the table had", count);
}

void require_one_scale(std::string_view recipe) {
  const Preset& preset = find_preset(recipe);
  const auto whole = [](const Recipe& r) { return r.row_block == 0 && r.k_block == 0; };
  require(whole(preset.activation) && whole(preset.weight), "recipe",
          "one with a scale for a whole tensor, as the calls of the table had", recipe);
}

/// The formats of the codes that are multiplied.
std::pair<FormatId, FormatId> formats_of(const GemmOperands& operands) {
  if (!operands.recipe.empty()) {
    const Preset& preset = find_preset(operands.recipe);
    return {preset.activation.format, preset.weight.format};
  }
  const auto read = [](std::string_view name, ElementType type) {
    const std::optional<FormatId> id = format_of(type);
    require(id == FormatId::e4m3fn || id == FormatId::e5m2, name, "e4m3fn or e5m2 with a table",
            to_string(type));
    return *id;
  };
  return {read("A", operands.a.type), read("B", operands.b.type)};
}

}  // namespace

bool is_table_call(std::string_view text) {
  return text.ends_with(kEnding) || text.find(".csv:") != std::string_view::npos;
}

TableCall parse_table_call(std::string_view text) {
  const std::size_t at = text.rfind(".csv:");
  require(at != std::string_view::npos, "call", kForm, text);
  TableCall call{std::string(text), std::string(text.substr(0, at + kEnding.size()))};
  std::string_view rest = text.substr(at + kEnding.size() + 1);
  for (bool first = true; first || !rest.empty(); first = false) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, end);
    rest = rest.substr(std::min(end + 1, rest.size()));
    if (first) {
      require(item == "fast" || item == "slow", "call", kForm, text);
      call.fast = item == "fast";
      continue;
    }
    const std::size_t equals = item.find('=');
    require(equals != std::string_view::npos, "call", kForm, item);
    const std::string field(item.substr(0, equals));
    const std::string value(item.substr(equals + 1));
    if (field == "output") {
      require(!call.output, "call", "output once", text);
      call.output = find_format(value).id;
      continue;
    }
    (void)find_field(field);
    require(std::ranges::none_of(call.choices,
                                 [&](const auto& choice) { return choice.first == field; }),
            "call", "each field once", field);
    call.choices.emplace_back(field, value);
  }
  return call;
}

CallModel candidate_of(const CallTable& table, const TableCall& call, const CallShape& shape) {
  const ObservedCall* observed = table.find(shape);
  require(observed != nullptr, "call", fmt::format("a call in {}", call.file), to_string(shape));
  const std::string where = fmt::format("{}: {}", call.file, to_string(shape));
  require(!observed->fitting.empty(), where, "a candidate that gives the observed outputs", "none");
  std::vector<CallModel> left = observed->fitting;
  for (const auto& [name, value] : call.choices) {
    const std::size_t field = find_field(name);
    const std::vector<std::string> values = values_of(left, field);
    std::erase_if(left, [&, &wanted = value](const CallModel& m) {
      return fields_of(m)[field].second != wanted;
    });
    require(!left.empty(), fmt::format("{}: {}", where, name),
            fmt::format("{}, as observed", fmt::join(values, " or ")), value);
  }
  if (left.size() == 1) return left.front();
  std::vector<std::string> open;
  const auto fields = fields_of(left.front());
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (const std::vector<std::string> values = values_of(left, i); values.size() > 1)
      open.push_back(fmt::format("{}={}", fields[i].first, fmt::join(values, "|")));
  throw Error(where,
              fmt::format("a choice of what the observation leaves open ({}), behind the call "
                          "as ,FIELD=VALUE",
                          fmt::join(open, ", ")),
              counted(left.size(), "candidate"));
}

GemmSpec with_call(const CallTable& table, const TableCall& call, const GemmOperands& operands,
                   GemmSpec spec) {
  if (operands.recipe.empty()) {
    require_one_scale(argument("scale_a"), operands.scale_a, operands.inverse_a);
    require_one_scale(argument("scale_b"), operands.scale_b, operands.inverse_b);
  } else {
    require_one_scale(operands.recipe);
  }
  require(spec.split == SplitK{}, argument("split_k"), "none with a table, which sets it",
          spec.split.parts);
  require(call.output.value_or(spec.output.format) == spec.output.format, "call",
          fmt::format("output={}, as the product's", format(spec.output.format).name), call.text);
  require(operands.a.shape.size() == 2 && operands.b.shape.size() == 2, "call",
          "matrices with a table", "another number of dimensions");
  const auto [a, b] = formats_of(operands);
  const std::size_t columns = operands.transpose_b ? 1 : 0;
  const CallShape shape{operands.a.shape[0],
                        operands.b.shape[columns],
                        operands.a.shape[1],
                        a,
                        b,
                        spec.output.format,
                        call.fast};
  const CallModel model = candidate_of(table, call, shape);
  require(model.rounding == CallRounding::once, fmt::format("{}: rounding", call.file),
          "once, as products round", to_string(model.rounding));
  spec.model = model_reading(table.model, call.file, a, b);
  spec.promotion_interval = model.interval;
  spec.split = model.split;
  if (spec.split.parts == 1) spec.split = {};
  spec.scale_order = model.scale_order;
  return spec;
}

}  // namespace fp8lab
