// What cuBLASLt does of its own choice in calls of known models: every call becomes a row of the
// table in lt_table.hpp, for which the library's model alone is compared with the output.

#include <fmt/format.h>

#include <algorithm>

#include "command.hpp"
#include "cublaslt.hpp"
#include "cublaslt_library.hpp"
#include "lt_calls.hpp"
#include "random_problem.hpp"

namespace fp8lab::cuda {
namespace {

// Outputs that are compared: with all of them the search would last too long.
constexpr std::int64_t kRows = 32;
constexpr std::int64_t kColumns = 64;

/// The FP8 instruction of a chip's products; empty if the library has no model of it.
std::string_view fp8_model(const Chip& chip) {
  switch (chip.capability) {
    case 89:
      return "sm89.mma.e4m3";
    case 90:
      return "sm90.wgmma.e4m3";
    case 100:
      return "sm100.tcgen05.e4m3";
    default:
      return {};
  }
}

std::string describe(const LtCall& call) {
  return fmt::format("{}x{}x{} to {}, fast accumulation {}", call.m, call.n, call.k,
                     format(call.output).name, call.fast ? "on" : "off");
}

/// The outputs at rows and columns of a sample, row-major.
std::vector<std::byte> outputs_at(const std::vector<std::uint8_t>& outputs, std::int64_t columns,
                                  std::size_t bytes, const Sample& sample) {
  std::vector<std::byte> taken;
  for (const std::int64_t row : sample.rows)
    for (const std::int64_t column : sample.columns) {
      const std::size_t at = static_cast<std::size_t>(row * columns + column) * bytes;
      for (std::size_t i = 0; i < bytes; ++i) taken.push_back(std::byte{outputs[at + i]});
    }
  return taken;
}

/// The operands of a shape, here and on the device.
struct Operands {
  explicit Operands(const RandomProblem& random)
      : a(std::span<const std::uint8_t>(random.a())),
        b(std::span<const std::uint8_t>(random.b())),
        a_scale(std::span<const float>(random.a_scales())),
        b_scale(std::span<const float>(random.b_scales())) {}

  DeviceBuffer<std::uint8_t> a;
  DeviceBuffer<std::uint8_t> b;
  DeviceBuffer<float> a_scale;
  DeviceBuffer<float> b_scale;
};

void observe(const LtCall& call, std::string_view model, const RandomProblem& random,
             const Operands& operands, const std::filesystem::path& file) {
  LtProblem problem{call.a,
                    call.b,
                    static_cast<int>(call.m),
                    static_cast<int>(call.n),
                    static_cast<int>(call.k),
                    call.fast};
  problem.d_format = call.output;
  LtGemm lt(problem);
  const auto bytes = static_cast<std::size_t>(format(call.output).storage_bits / 8);
  DeviceBuffer<std::uint8_t> d(random.outputs() * bytes);
  d.fill(0xab);
  if (!lt.supported() || !lt.run(operands.a.data(), operands.b.data(), operands.a_scale.data(),
                                 operands.b_scale.data(), d.data())) {
    fmt::print("{}: not offered: {}\n", describe(call), lt.reason());
    return;
  }
  Product whole;
  whole.model = model;
  whole.problem = random.problem();
  whole.output = default_output(call.output);
  const Sample sample{spread(call.m, kRows), spread(call.n, kColumns)};
  const LtFinding finding = find_lt_model(
      take(whole, sample), outputs_at(d.copy_out(), call.n, bytes, sample), lt.split_k());
  fmt::print("{}: {}\n  {}\n", describe(call), lt.kernel(), to_string(finding));
  add_to_lt_table(file, recording_header(), row_of(call, finding));
}

}  // namespace

std::vector<Part> observe_parts(const std::filesystem::path& out, const Chip& chip,
                                std::uint64_t seed) {
  const std::string_view model = fp8_model(chip);
  const std::string missing = model.empty() ? "the library has no model of this chip's FP8 products"
                                            : find_lt_library().missing;
  if (!missing.empty())
    return {{"observe", [missing] {
               return std::vector<CheckRow>{{"observe", 0, 0, "", "not run: " + missing}};
             }}};
  const std::filesystem::path file = out / "cublaslt.csv";
  std::vector<Part> parts{{"observe", [file] {
                             std::filesystem::remove(file);  // of an earlier run
                             return std::vector<CheckRow>{};
                           }}};
  for (const LtCall& shape : lt_shapes())
    parts.push_back(
        {fmt::format("observe {}x{}x{}", shape.m, shape.n, shape.k), [shape, model, seed, file] {
           RandomProblem random(find_instruction_model(model), shape.m, shape.n, shape.k,
                                Distribution::normal, seed);
           random.set_recipe(Recipe::per_tensor, 0, ScaleOrder::product_then_fma);
           const Operands operands(random);
           for (const LtCall& call : lt_calls_of(shape))
             observe(call, model, random, operands, file);
           return std::vector<CheckRow>{};
         }});
  return parts;
}

}  // namespace fp8lab::cuda
