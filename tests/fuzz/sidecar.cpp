#include <array>

#include "fp8lab/io/operand.hpp"
#include "target.hpp"

using namespace fp8lab;

namespace {

struct Removal {
  ~Removal() {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
  }
  const std::filesystem::path& file;
};

}  // namespace

void parse(std::span<const std::uint8_t> input) {
  const std::filesystem::path sidecar = as_file(input, ".bin.json");
  const std::filesystem::path data = std::filesystem::path(sidecar).replace_extension();
  const std::array<char, 64> zeros{};
  std::ofstream(data, std::ios::binary).write(zeros.data(), zeros.size());
  const Removal removal{data};
  const Operand operand = load_operand(data.string());
  expect(operand.tensor().bytes.size() == 64);
}
