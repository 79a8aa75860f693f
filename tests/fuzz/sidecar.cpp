#include <array>
#include <utility>

#include "fp8lab/io/operand.hpp"
#include "target.hpp"

using namespace fp8lab;

namespace {

/// The data beside the sidecar: written once, removed at the end.
class Data {
 public:
  explicit Data(std::filesystem::path file) : file_(std::move(file)) {
    const std::array<char, 64> zeros{};
    std::ofstream(file_, std::ios::binary).write(zeros.data(), zeros.size());
  }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
  ~Data() {
    std::error_code ignored;
    std::filesystem::remove(file_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& file() const { return file_; }

 private:
  std::filesystem::path file_;
};

}  // namespace

void parse(std::span<const std::uint8_t> input) {
  const std::filesystem::path& sidecar = as_file(input, ".bin.json");
  static const Data kData(std::filesystem::path(sidecar).replace_extension());
  const Operand operand = load_operand(kData.file().string());
  expect(operand.tensor().bytes.size() == 64);
}
