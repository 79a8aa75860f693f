#include "fp8lab/identify/identify.hpp"
#include "fp8lab/core/json_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "command.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/formats/code_hex.hpp"
#include "fp8lab/identify/grouped.hpp"
#include "fp8lab/scaling/cast_search.hpp"
#include "fp8lab/tensors/packed.hpp"
#include "ignored_options.hpp"
#include "non_finite.hpp"
#include "operands.hpp"

namespace fp8lab::cli {
namespace {

using nlohmann::json;

struct IdentifyArguments {
  OperandOptions operands;
  std::string got;
  std::string output_dtype;
  std::vector<std::string> more;
  std::size_t top = 5;
  bool cast = false;
  bool json = false;
};

json json_of(const Explanation& one, bool scaled) {
  json result{{"models", one.models},
              {"promotion", one.promotion_interval},
              {"scale_order", to_string(one.scale_order)},
              {"split_k", one.split_k},
              {"rounding", one.rounding}};
  if (one.c_enters != CPlacement::unnamed) result["c_enters"] = to_string(one.c_enters);
  if (const auto options = command_options(one, scaled)) result["options"] = *options;
  return result;
}

json json_of(const Identification& r, std::size_t top) {
  const auto hex = [&](std::uint32_t code) { return code_hex(format(r.output), code); };
  json ranking = json::array();
  for (std::size_t i = 0; i < std::min(top, r.ranking.size()); ++i) {
    json members = json::array();
    for (const Explanation& one : r.ranking[i].members) members.push_back(json_of(one, r.scaled));
    ranking.push_back({{"matches", r.ranking[i].matches},
                       {"compared", r.ranking[i].compared},
                       {"explanations", members}});
  }
  json elements = json::array();
  for (const SeparatingElement& e : r.separating)
    elements.push_back({{"row", e.row},
                        {"column", e.column},
                        {"got", hex(e.got)},
                        {"first", hex(e.first)},
                        {"second", hex(e.second)}});
  return {{"explained", r.explained()},
          {"shape", {r.rows, r.columns}},
          {"k", r.k},
          {"out_dtype", format(r.output).name},
          {"tried", r.tried},
          {"not_computed_whole", r.beyond},
          {"ranking", ranking},
          {"separating",
           {{"count", r.separating_count},
            {"compared", r.separating_compared},
            {"elements", elements}}}};
}

/// What is tried beside the registered models.
std::vector<std::string> models_of(const IdentifyArguments& options) {
  const ModelBook book = load_models(options.operands.models);
  std::vector<std::string> models = book.definitions();
  for (const std::string& text : options.more) models.push_back(book.resolve(text));
  return models;
}

json json_of(const GroupedIdentification& r, std::size_t top) {
  json groups = json::array();
  for (const GroupMatch& one : r.groups)
    groups.push_back({{"group", one.group},
                      {"first_row", one.first_row},
                      {"matches", one.matches},
                      {"compared", one.compared}});
  json result = json_of(r.found, top);
  result["explained"] = r.explained();
  result["group"] = r.group;
  result["groups"] = groups;
  return result;
}

int run_grouped(const IdentifyArguments& options, const Groups& groups, const Operand& got,
                FormatId id) {
  const GroupedProduct product =
      make_grouped_product_of_unknown_model(load_operands(options.operands), default_output(id),
                                            groups, epilogue_of(options.operands.epilogue));
  const GroupedIdentification result =
      identify(product, got, options.operands.threads, models_of(options));
  NonFiniteReport non_finite = count_non_finite(product);
  non_finite.push_back({options.got, count_non_finite(id, got.tensor().bytes)});
  warn_of_non_finite(non_finite);
  if (options.json)
    fmt::print("{}\n", json_text(json_of(result, options.top), 2));
  else
    fmt::print("{}", describe(result, options.top));
  return result.explained() ? kPass : kMismatch;
}

/// Codes one a byte, whatever their type is called; packed ones unpacked.
std::vector<std::uint8_t> cast_codes(const TensorView& tensor) {
  std::vector<std::byte> memory;
  std::span<const std::byte> bytes = tensor.bytes;
  if (is_packed(tensor.type)) {
    memory = unpack_codes(tensor);
    bytes = memory;
  }
  std::vector<std::uint8_t> codes(bytes.size());
  std::transform(bytes.begin(), bytes.end(), codes.begin(),
                 [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
  return codes;
}

json json_of(const CastSearch& search, std::size_t top) {
  json recipes = json::array();
  for (std::size_t i = 0; i < search.recipes.size(); ++i) {
    const RecipeMatch& one = search.recipes[i];
    if (i >= top && !one.exact()) break;
    recipes.push_back({{"recipe", one.recipe},
                       {"role", to_string(one.role)},
                       {"tile", {one.row_block, one.k_block}},
                       {"wrong_codes", one.wrong_codes},
                       {"wrong_scales", one.wrong_scales},
                       {"scales_multiply", one.multiplies}});
  }
  json elements = json::array();
  for (std::size_t i = 0; i < std::min(top, search.elements.size()); ++i) {
    const ElementMatch& one = search.elements[i];
    elements.push_back({{"input", one.input},
                        {"scaling", one.scaling},
                        {"rounding", one.rounding},
                        {"overflow", one.overflow},
                        {"subnormals", one.subnormals},
                        {"tile", {one.row_block, one.k_block}},
                        {"wrong_codes", one.wrong_codes}});
  }
  return {{"explained", search.explained()},
          {"codes", search.codes},
          {"scales", search.tiles},
          {"recipes", recipes},
          {"elements", elements}};
}

/// A, B and D are the original, the codes and the scales.
int run_cast(const IdentifyArguments& options) {
  const Operand x = load_operand(options.operands.a, element_type(options.operands.dtype));
  const Operand codes = load_operand(options.operands.b, element_type(options.output_dtype));
  const Operand scales = load_operand(options.got, element_type(options.operands.scale_format));
  const TensorView& values = x.tensor();
  const ElementType type = unpacked(codes.tensor().type);
  const std::optional<FormatId> id = format_of(type);
  require(id && format(*id).code_bits() <= 8, options.operands.b,
          "FP8, FP6 or FP4 codes; uint8 codes need --out-dtype", to_string(type));
  require(!values.shape.empty(), options.operands.a, "[..., k]", shape_text(values.shape));
  const std::vector<float> floats = to_float(values);
  const std::vector<std::uint8_t> bytes = cast_codes(codes.tensor());
  const std::vector<float> factors = to_float(scales.tensor());
  const std::int64_t k = values.shape.back();
  const auto rows = static_cast<std::int64_t>(floats.size()) / std::max<std::int64_t>(1, k);
  const CastSearch search =
      search_cast({{floats, rows, k}, *id, bytes, factors}, options.operands.threads);
  if (options.json)
    fmt::print("{}\n", json_text(json_of(search, options.top), 2));
  else
    fmt::print("{}", describe(search, options.top));
  return search.explained() ? kPass : kMismatch;
}

int run(const IdentifyArguments& options) {
  if (options.cast) return run_cast(options);
  const Operand got = load_operand(options.got, element_type(options.output_dtype));
  const TensorView& d = got.tensor();
  const std::optional<FormatId> id = format_of(d.type);
  require(id.has_value(), options.got, "floats or FP8 codes; uint8 codes need --out-dtype",
          to_string(d.type));
  if (const std::optional<Groups> groups = groups_of(options.operands.groups))
    return run_grouped(options, *groups, got, *id);
  const Product product = make_product_of_unknown_model(
      load_operands(options.operands), default_output(*id), epilogue_of(options.operands.epilogue));
  const Identification result =
      identify(product, got, options.operands.threads, models_of(options));
  NonFiniteReport non_finite = count_non_finite(product);
  non_finite.push_back({options.got, count_non_finite(*id, d.bytes)});
  warn_of_non_finite(non_finite);
  if (options.json)
    fmt::print("{}\n", json_text(json_of(result, options.top), 2));
  else
    fmt::print("{}", describe(result, options.top));
  return result.explained() ? kPass : kMismatch;
}

}  // namespace

void add_identify(Command& app, Action& action) {
  auto options = std::make_shared<IdentifyArguments>();
  Command* command = app.add_subcommand(
      "identify", "Find the model that explains an output bit for bit. Exit 0: found; 1: none");
  command->add_option("A", options->operands.a, "A [m, k]: FILE.npy, .npz:NAME, .safetensors:NAME")
      ->required();
  command->add_option("B", options->operands.b, "B [n, k]")->required();
  command->add_option("D", options->got, "the kernel's output [m, n]")->required();
  add_input_options(*command, options->operands);
  command->add_option("--out-dtype", options->output_dtype,
                      "format of uint8 codes in D, or in B with --cast");
  command->add_flag("--cast", options->cast,
                    "find the recipe, input type, scaling and rounding of a cast: A is the "
                    "original, B its codes, D its scales (--scale-format for uint8 ones)");
  command
      ->add_option("--model", options->more,
                   "another model to try, such as a definition; may be given again")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  command->add_option("--top", options->top, "ranks to show")
      ->check(between(1, 1'000'000))
      ->capture_default_str();
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, command, &action] {
    action = [options, command] {
      require_no_ignored_options(*command);
      return run(*options);
    };
  });
}

}  // namespace fp8lab::cli
