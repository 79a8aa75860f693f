#include "fp8lab/reveal/probe_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/io/npy.hpp"
#include "fp8lab/io/operand.hpp"
#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

/// Types that files can hold: TF32 operands are binary32 ones.
ElementType type_of(FormatId id) {
  return element_type_of(id == FormatId::tf32 ? FormatId::f32 : id);
}

TensorView view(FormatId id, std::vector<std::int64_t> shape, const std::vector<std::byte>& words) {
  return {type_of(id), std::move(shape), words, false};
}

void require_same(const fs::path& path, const TensorView& expected) {
  const ElementType type = expected.type;
  const bool named = element_bytes(type) > 2;
  const NpyFile file(path, named ? std::nullopt : std::optional(type));
  const auto& bytes = file.tensor().bytes;
  require(file.tensor().shape == expected.shape &&
              std::equal(bytes.begin(), bytes.end(), expected.bytes.begin(), expected.bytes.end()),
          path.string(), "the operands of these options, formats, shape and seed",
          "others: remove the folder, or use the options with which it was written");
}

void write_round(const fs::path& folder, const ProbeCalls& calls, const TensorView& a,
                 const TensorView& b) {
  make_writable_folder(folder);
  write_npy(folder / "a.npy", a);
  write_npy(folder / "b.npy", b);
  write_file(
      folder / "README.txt",
      fmt::format("a.npy [{0}, {1}, {3}] holds {4}, b.npy [{0}, {2}, {3}] holds {5} (codes as "
                  "uint8).\nFor each i of {0}, compute D[i] = A[i] . B[i]^T with all scales 1 and "
                  "C zero. Write D [{0}, {1}, {2}] to d.npy\n(float32 or float16, as the kernel "
                  "gives it) in this folder, then run the command again.\n",
                  calls.calls, calls.m, calls.n, calls.k, format(calls.a_format).name,
                  format(calls.b_format).name));
}

}  // namespace

ProbeKernel file_kernel(const fs::path& folder) {
  const auto round = std::make_shared<std::int64_t>(0);
  return [folder, round](const ProbeCalls& calls) {
    const fs::path here = folder / fmt::format("round-{}", ++*round);
    const TensorView a = view(calls.a_format, {calls.calls, calls.m, calls.k}, calls.a);
    const TensorView b = view(calls.b_format, {calls.calls, calls.n, calls.k}, calls.b);
    if (!fs::exists(here / "d.npy")) {
      if (fs::exists(here / "a.npy") && fs::exists(here / "b.npy")) {
        require_same(here / "a.npy", a);
        require_same(here / "b.npy", b);
      } else {
        write_round(here, calls, a, b);
      }
      throw ProbesWait(
          fmt::format("round {}: {} products wait in {}; write their outputs [{}, {}, {}] to d.npy "
                      "there, then run this command again",
                      *round, calls.calls, here.string(), calls.calls, calls.m, calls.n),
          *round);
    }
    require_same(here / "a.npy", a);
    require_same(here / "b.npy", b);
    const Operand d = load_operand((here / "d.npy").string());
    const std::vector<std::int64_t> shape{calls.calls, calls.m, calls.n};
    const ElementType type = d.tensor().type;
    require(d.tensor().shape == shape, (here / "d.npy").string(), shape_text(shape),
            shape_text(d.tensor().shape));
    require(is_float_of_32_bits_or_fewer(type), (here / "d.npy").string(),
            "float32, float16 or bfloat16", to_string(type));
    return ProbeOutputs{to_float(d.tensor()), *format_of(type)};
  };
}

}  // namespace fp8lab
