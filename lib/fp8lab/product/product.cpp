#include "fp8lab/product/product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/calls.hpp"
#include "fp8lab/product/operand_epilogue.hpp"
#include "fp8lab/product/partial_sums.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/tensors/packed.hpp"
#include "fp8lab/tensors/slices.hpp"

namespace fp8lab {
namespace {

std::string shape_of(const TensorView& tensor) {
  return fmt::format("{} {}", to_string(tensor.type), shape_text(tensor.shape));
}

/// The instructions whose operands have this format.
std::vector<std::string_view> readers_of(FormatId id) {
  std::vector<std::string_view> names;
  for (const InstructionModel& model : instruction_models())
    if (model.standing != Standing::definition && model.a_format == id && model.b_format == id)
      names.push_back(model.name);
  return names;
}

/// The format of an operand's elements as the model sees them.
FormatId operand_format(std::string_view name, const TensorView& tensor,
                        const InstructionModel& model, FormatId wanted) {
  if (wanted == FormatId::tf32 && tensor.type == ElementType::f32) return FormatId::tf32;
  const std::string expected = fmt::format("{} for {}", format(wanted).name, model.name);
  require(tensor.type != ElementType::u8, name,
          fmt::format("{}; uint8 codes need their format ({}, or a sidecar)", expected,
                      argument("dtype", "e4m3fn")),
          shape_of(tensor));
  const std::optional<FormatId> id = format_of(tensor.type);
  const bool takes_any = model.standing == Standing::definition;
  const bool fits = id && (*id == wanted || (takes_any && *id != FormatId::f32));
  if (id && !fits && is_built_in(*id) && format(*id).specials == SpecialValues::fnuz)
    throw Error(name,
                fmt::format("{}; FNUZ codes are AMD's, this one for {}, fp32 or {}", expected,
                            argument("model", "exact"), fmt::join(readers_of(*id), ", ")),
                shape_of(tensor));
  require(fits, name,
          is_float(tensor.type) ? fmt::format("{}; floats need a recipe to quantize them ({})",
                                              expected, argument("recipe"))
                                : expected,
          shape_of(tensor));
  return *id;
}

/// Throws `Error` for codes with bits that their format does not have.
void require_narrow(std::string_view name, FormatId id, const ProductOperand& operand) {
  const TensorView& tensor = operand.codes;
  if (!format(id).is_padded()) return;
  if (!operand.strides) return require_narrow_codes(id, tensor.bytes, name);
  const std::int64_t width = format(id).bytes();
  const auto [row_stride, column_stride] = *operand.strides;
  for (std::int64_t i = 0; i < tensor.shape[0]; ++i)
    for (std::int64_t j = 0; j < tensor.shape[1]; ++j) {
      const std::byte* code = tensor.bytes.data() + (i * row_stride + j * column_stride) * width;
      require_narrow_codes(id, {code, static_cast<std::size_t>(width)}, name);
    }
}

/// A view of the tensor's elements: B as [n, k], whatever the tensor's order.
CodeMatrix code_matrix(FormatId id, const ProductOperand& operand) {
  const TensorView& tensor = operand.codes;
  CodeMatrix m{id, tensor.bytes.data(), tensor.shape[0], tensor.shape[1], tensor.shape[1], 1};
  if (tensor.fortran_order) {
    m.row_stride = 1;
    m.k_stride = tensor.shape[0];
  }
  if (operand.strides) {
    m.row_stride = (*operand.strides)[0];
    m.k_stride = (*operand.strides)[1];
  }
  if (operand.transposed) {
    std::swap(m.rows, m.k);
    std::swap(m.row_stride, m.k_stride);
  }
  return m;
}

/// One side of a problem, A or B.
struct ProblemSide {
  std::string_view name;
  std::string_view scales_name;
  CodeMatrix& matrix;
  InverseScales& scales;
  Originals& original;
  std::shared_ptr<const RecipeCast>& cast;
  std::span<const float>& signed_scales;
};

ProblemSide side_a(Product& p) {
  return {"A",          "scale_a", p.problem.a,      p.problem.scale_a,
          p.a_original, p.a_cast,  p.signed_scales_a};
}
ProblemSide side_b(Product& p) {
  return {"B",          "scale_b", p.problem.b,      p.problem.scale_b,
          p.b_original, p.b_cast,  p.signed_scales_b};
}

/// Float operands, quantized by one side of a preset.
void quantize_operand(const Recipe& recipe, const ProductOperand& operand, int threads,
                      Product& product, const ProblemSide& side) {
  const TensorView& tensor = operand.codes;
  require(!operand.strides, side.name, "a dense tensor, for a recipe", "a part of a larger one");
  require(is_float(tensor.type), side.name, "floats, since a recipe quantizes them",
          shape_of(tensor));
  auto values = std::make_shared<std::vector<float>>(to_float_exactly(tensor, side.name));
  std::int64_t rows = tensor.shape[0];
  std::int64_t k = tensor.shape[1];
  if (operand.transposed) {
    *values = transpose({*values, rows, k});
    std::swap(rows, k);
  }
  const auto quantized = std::make_shared<QuantizedTensor>(
      quantize(recipe, FloatMatrix{*values, rows, k}, false, threads));
  side.matrix = quantized->matrix();
  side.scales = quantized->inverse();
  side.original = values;
  side.cast = std::make_shared<const RecipeCast>(RecipeCast{recipe.rule, quantized});
  product.owners.push_back(quantized);
}

void use_recipe(const GemmOperands& operands, const InstructionModel& model, Product& product) {
  for (const ProductOperand* one : {&operands.a, &operands.b})
    require(!one->has_scales() && one->tensor_scale == 1.0F, "scales",
            "none, since the recipe makes them", "scales of your own");
  const Preset& preset = find_preset(operands.recipe);
  quantize_operand(preset.activation, operands.a, operands.threads, product, side_a(product));
  quantize_operand(preset.weight, operands.b, operands.threads, product, side_b(product));
  const GemmProblem& p = product.problem;
  const bool takes_any = model.standing == Standing::definition;
  require(takes_any || (p.a.format == model.a_format && p.b.format == model.b_format), "recipe",
          fmt::format("a recipe that gives {} and {}, for {}", format(model.a_format).name,
                      format(model.b_format).name, model.name),
          fmt::format("{} and {} from {}", format(p.a.format).name, format(p.b.format).name,
                      operands.recipe));
}

void use_codes(const ProductOperand& operand, const InstructionModel& model, FormatId wanted,
               Product& product, const ProblemSide& side) {
  const FormatId id = operand_format(side.name, operand.codes, model, wanted);
  require_narrow(side.name, id, operand);
  CodeMatrix& m = side.matrix = code_matrix(id, operand);
  if (operand.scales) {
    ScaleGrid grid =
        read_scales(side.scales_name, *operand.scales, operand.layout, operand.tiles, m.rows, m.k);
    if (!grid.with_signs.empty()) side.signed_scales = product.keep(std::move(grid.with_signs));
    side.scales = {product.keep(std::move(grid.values)), grid.tiles.rows, grid.tiles.columns,
                   grid.format};
  }
  if (operand.inverse) side.scales = *operand.inverse;
  side.scales.tensor_scale = operand.tensor_scale;
}

}  // namespace

OutputCast default_output(FormatId id) {
  switch (id) {
    case FormatId::f32:
      return {};
    case FormatId::f16:
    case FormatId::bf16:
      return {id, kNvidiaNosat};
    case FormatId::e4m3fn:
    case FormatId::e5m2:
    case FormatId::e4m3fnuz:
    case FormatId::e5m2fnuz:
      return {id, kNvidiaSatfinite};
    default:
      throw Error("output dtype", "f32, f16, bf16, e4m3fn, e5m2 or a FNUZ form of them",
                  format(id).name);
  }
}

void require_output_of(std::string_view model, FormatId output) {
  const InstructionModel& instruction = find_instruction_model(model);
  const bool fnuz = format(output).specials == SpecialValues::fnuz;
  const bool others =
      instruction.standing != Standing::definition && instruction.vendor != Vendor::amd;
  require(!fnuz || !others, "output dtype",
          fmt::format("one that {} have, for {} (FNUZ is AMD's: {} or fp32)",
                      instruction.vendor == Vendor::nvidia ? "NVIDIA's chips" : "processors", model,
                      argument("model", "exact")),
          format(output).name);
}

std::pair<std::int64_t, std::int64_t> sides_of(std::string_view name,
                                               const ProductOperand& operand) {
  const std::vector<std::int64_t>& shape = operand.codes.shape;
  const char side = name == "A" ? 'm' : 'n';
  require(shape.size() == 2, name,
          operand.transposed ? fmt::format("a matrix [k, {}]", side)
                             : fmt::format("a matrix [{}, k]", side),
          shape_of(operand.codes));
  return operand.transposed ? std::pair{shape[1], shape[0]} : std::pair{shape[0], shape[1]};
}

std::span<const float> Product::keep(std::vector<float> values) {
  const auto kept = std::make_shared<const std::vector<float>>(std::move(values));
  owners.push_back(kept);
  return *kept;
}

namespace {

void require_shapes(const ProductOperand& a, const ProductOperand& b) {
  const std::int64_t k = sides_of("A", a).second;
  const auto [b_n, b_k] = sides_of("B", b);
  require(b_k == k, "B",
          fmt::format("{} with k = {}, as for A{}", b.transposed ? "[k, n]" : "[n, k]", k,
                      b_n != k       ? std::string()
                      : b.transposed ? "; it is [n, k]: leave out " + argument("transpose_b")
                                     : "; it is [k, n]: give " + argument("transpose_b")),
          shape_text(b.codes.shape));
}

/// The product as asked for, its promotion interval not yet checked.
Product assemble(const GemmOperands& operands, const GemmSpec& spec) {
  const InstructionModel& model = find_instruction_model(spec.model);
  require_output_of(spec.model, spec.output.format);
  for (const ProductOperand* one : {&operands.a, &operands.b})
    require(one->group_tensor_scales.empty(), "tensor_scale",
            "one number, since there are no groups", "one per group");
  require_shapes(operands.a, operands.b);
  Product product;
  product.model = spec.model;
  product.output = spec.output;
  product.split = spec.split;
  if (operands.owner) product.owners.push_back(operands.owner);
  GemmProblem& p = product.problem;
  p.model = model.accumulator;
  p.promotion_interval = spec.promotion_interval;
  p.scale_order = spec.scale_order;
  p.c_enters = spec.c_enters;
  if (operands.recipe.empty()) {
    use_codes(operands.a, model, model.a_format, product, side_a(product));
    use_codes(operands.b, model, model.b_format, product, side_b(product));
  } else {
    use_recipe(operands, model, product);
  }
  add_epilogue(operands, spec, product);
  return product;
}

}  // namespace

Product make_product(const GemmOperands& operands, const GemmSpec& spec) {
  Product product = assemble(operands, with_call(operands, spec));
  validate(product.problem, product.sum_count());
  validate_split(product);
  if (spec.epilogue.scale_by_amax) scale_by_amax(product);
  return product;
}

Product make_product_of_unknown_model(const GemmOperands& operands, const OutputCast& output,
                                      const EpilogueSpec& epilogue) {
  const bool tf32 = operands.a.codes.type == ElementType::f32 && operands.recipe.empty();
  Product product = assemble(
      operands,
      {.model = tf32 ? "sm90.wgmma.tf32" : "exact", .output = output, .epilogue = epilogue});
  product.problem = of_unknown_model(product.problem);
  validate(product.problem, product.sum_count());
  return product;
}

GemmProblem of_unknown_model(GemmProblem p) {
  p.model = find_instruction_model("exact").accumulator;
  p.promotion_interval = std::gcd(tile_along_k(p.scale_a, p.a), tile_along_k(p.scale_b, p.b));
  p.c_enters = possible_c_placements(p).front();
  return p;
}

std::vector<std::byte> cast_output(std::span<const float> values, const OutputCast& output,
                                   int threads) {
  const Format& f = format(output.format);
  const auto width = static_cast<std::size_t>(f.bytes());
  std::vector<std::byte> codes(values.size() * width);
  constexpr std::size_t kSmall = 1 << 14;
  const EncodeOptions options{
      .format = f.id, .policy = output.policy, .threads = values.size() < kSmall ? 1 : threads};
  if (f.id == FormatId::f32) {
    if (!values.empty()) std::memcpy(codes.data(), values.data(), codes.size());
  } else if (width == 1) {
    encode(values, std::span(reinterpret_cast<std::uint8_t*>(codes.data()), values.size()),
           options);
  } else {
    encode(values, std::span(reinterpret_cast<std::uint16_t*>(codes.data()), values.size()),
           options);
  }
  return codes;
}

void scale_by_amax(Product& product, int threads) {
  const FloatEnvironment environment;
  product.epilogue.output_scale = std::nullopt;
  const float amax = compute_finished(product, false, threads).amax;
  const float scale = static_cast<float>(format(product.output.format).max_finite()) / amax;
  product.epilogue.output_scale = std::isfinite(scale) ? scale : 1.0F;
}

std::vector<std::byte> golden_output(const Product& product, int threads) {
  return cast_output(compute(product, threads), product.output, threads);
}

}  // namespace fp8lab
