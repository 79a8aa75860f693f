// What cuBLASLt does of its own choice in calls of known models: every call becomes rows of the
// table in calls.hpp, for which the library's model alone is compared with the output.

#include <fmt/format.h>

#include <algorithm>

#include "command.hpp"
#include "cublaslt.hpp"
#include "cublaslt_library.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/product/product.hpp"
#include "lt_calls.hpp"
#include "lt_model.hpp"
#include "random_problem.hpp"
#include "tool/lt_text.hpp"

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
class Operands {
 public:
  explicit Operands(const RandomProblem& random)
      : random_(random),
        a_(std::span<const std::uint8_t>(random.a())),
        b_(std::span<const std::uint8_t>(random.b())),
        a_scale_(std::span<const float>(random.scale_a())),
        b_scale_(std::span<const float>(random.scale_b())) {}

  [[nodiscard]] const RandomProblem& random() const { return random_; }

  [[nodiscard]] bool run(LtGemm& lt, void* d) {
    return lt.run(a_.data(), b_.data(), a_scale_.data(), b_scale_.data(), d);
  }

  /// Puts the operands of a product in the sampled rows.
  void put(const Sample& sample, const GemmProblem& problem) {
    put_rows(a_, sample.rows, problem.a);
    put_rows(b_, sample.columns, problem.b);
    a_scale_.copy_in(problem.scale_a.values);
    b_scale_.copy_in(problem.scale_b.values);
  }
  void restore() {
    a_.copy_in(random_.a());
    b_.copy_in(random_.b());
    a_scale_.copy_in(random_.scale_a());
    b_scale_.copy_in(random_.scale_b());
  }

 private:
  static void put_rows(DeviceBuffer<std::uint8_t>& buffer, const std::vector<std::int64_t>& rows,
                       const CodeMatrix& codes) {
    const auto* data = static_cast<const std::uint8_t*>(codes.data);
    const auto k = static_cast<std::size_t>(codes.k);
    for (std::size_t i = 0; i < rows.size(); ++i)
      buffer.copy_in({data + i * k, k}, static_cast<std::size_t>(rows[i]) * k);
  }

  const RandomProblem& random_;
  DeviceBuffer<std::uint8_t> a_;
  DeviceBuffer<std::uint8_t> b_;
  DeviceBuffer<float> a_scale_;
  DeviceBuffer<float> b_scale_;
};

void observe(const CallShape& call, std::string_view model, Operands& operands, std::uint64_t seed,
             const std::filesystem::path& file) {
  LtProblem problem{call.a,
                    call.b,
                    static_cast<int>(call.m),
                    static_cast<int>(call.n),
                    static_cast<int>(call.k),
                    call.fast};
  problem.d_format = call.output;
  LtGemm lt(problem);
  const auto bytes = static_cast<std::size_t>(format(call.output).storage_bits / 8);
  DeviceBuffer<std::uint8_t> d(operands.random().outputs() * bytes);
  d.fill(0xab);
  if (!lt.supported() || !operands.run(lt, d.data())) {
    fmt::print("{}: not offered: {}\n", to_string(call), lt.reason());
    return;
  }
  Product whole;
  whole.model = model;
  whole.problem = operands.random().problem();
  whole.output = default_output(call.output);
  const Sample sample{spread(call.m, kRows), spread(call.n, kColumns)};
  const Product small = take(whole, sample);
  LtFinding finding =
      find_lt_model(small, outputs_at(d.copy_out(), call.n, bytes, sample), lt.split_k());
  if (finding.fitting.size() > 1) {
    const LtRun again = [&](const Product& other) {
      operands.put(sample, other.problem);
      require(operands.run(lt, d.data()), "cublasLtMatmul", "the same call again", lt.reason());
      return outputs_at(d.copy_out(), call.n, bytes, sample);
    };
    separate(finding, small, again, seed);
    operands.restore();
  }
  fmt::print("{}: {} ({})\n", to_string(call), to_string(finding), lt.kernel());
  add_to_call_table(file, std::string(model), recording_header(),
                    {call, finding.outputs, finding.fitting});
}

/// What the table says. A call that no candidate gives counts as a mismatch.
std::vector<CheckRow> summarize(const std::filesystem::path& file) {
  CheckRow row{"cuBLASLt, observed calls", 0, 0, "", "not run: none was offered"};
  if (!std::filesystem::exists(file)) return {row};
  const CallTable table = read_call_table(file);
  row.cases = table.calls.size();
  for (const ObservedCall& one : table.calls) row.mismatches += one.fitting.empty() ? 1 : 0;
  const std::vector<std::string> lines = summary_of(table.calls);
  for (const std::string& line : lines) fmt::print("{}\n", line);
  row.note = lines.front();
  return {row};
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
  for (const CallShape& shape : lt_shapes())
    parts.push_back(
        {fmt::format("observe {}x{}x{}", shape.m, shape.n, shape.k), [shape, model, seed, file] {
           RandomProblem random(find_instruction_model(model), shape.m, shape.n, shape.k,
                                Distribution::normal, seed);
           random.set_recipe(Recipe::per_tensor, 0, ScaleOrder::product_then_fma);
           Operands operands(random);
           for (const CallShape& call : lt_calls_of(shape))
             observe(call, model, operands, seed, file);
           return std::vector<CheckRow>{};
         }});
  parts.push_back({"observed calls", [file] { return summarize(file); }});
  return parts;
}

}  // namespace fp8lab::cuda
