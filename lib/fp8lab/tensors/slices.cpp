#include "fp8lab/tensors/slices.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {

HeldTensor row_major(const TensorView& tensor) {
  if (!tensor.fortran_order || tensor.shape.size() < 2) {
    HeldTensor same{tensor, nullptr};
    same.view.fortran_order = false;
    return same;
  }
  const std::size_t width = element_bytes(tensor.type);
  const auto count = static_cast<std::size_t>(tensor.size());
  require(tensor.bytes.size() == count * width, "tensor",
          fmt::format("{} bytes for {}", count * width, shape_text(tensor.shape)),
          fmt::format("{}", tensor.bytes.size()));
  const auto copy = std::make_shared<std::vector<std::byte>>(tensor.bytes.size());
  const std::size_t rank = tensor.shape.size();
  std::vector<std::int64_t> index(rank, 0);
  std::vector<std::int64_t> stride(rank, 1);
  for (std::size_t d = 1; d < rank; ++d) stride[d] = stride[d - 1] * tensor.shape[d - 1];
  std::int64_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(copy->data() + i * width,
                tensor.bytes.data() + static_cast<std::size_t>(at) * width, width);
    for (std::size_t d = rank; d-- > 0;) {
      at += stride[d];
      if (++index[d] < tensor.shape[d]) break;
      at -= stride[d] * tensor.shape[d];
      index[d] = 0;
    }
  }
  return {{tensor.type, tensor.shape, *copy, false}, copy};
}

TensorView slice(const TensorView& tensor, std::int64_t begin, std::int64_t end) {
  require(!tensor.shape.empty() && begin >= 0 && begin <= end && end <= tensor.shape[0], "slice",
          fmt::format("a part of the first dimension of {}", shape_text(tensor.shape)),
          fmt::format("[{}, {})", begin, end));
  const std::size_t each =
      tensor.shape[0] == 0 ? 0 : tensor.bytes.size() / static_cast<std::size_t>(tensor.shape[0]);
  TensorView part = tensor;
  part.shape[0] = end - begin;
  part.bytes = tensor.bytes.subspan(static_cast<std::size_t>(begin) * each,
                                    static_cast<std::size_t>(end - begin) * each);
  return part;
}

TensorView element(const TensorView& tensor, std::int64_t index) {
  TensorView part = slice(tensor, index, index + 1);
  part.shape.erase(part.shape.begin());
  return part;
}

std::vector<float> to_float_exactly(const TensorView& tensor, std::string_view argument) {
  const FloatEnvironment environment;
  std::vector<float> values = to_float(tensor);
  if (tensor.type != ElementType::f64) return values;
  const HeldTensor dense = row_major(tensor);
  for (std::size_t i = 0; i < values.size(); ++i) {
    double exact = 0.0;
    std::memcpy(&exact, dense.view.bytes.data() + i * sizeof exact, sizeof exact);
    require(std::isnan(exact) || static_cast<double>(values[i]) == exact, argument,
            "f32, or f64 values that are exact in it (round them yourself: x.astype(np.float32))",
            fmt::format("{:.17g}, value {} of {}", exact, i, shape_text(tensor.shape)));
  }
  return values;
}

namespace {

template <typename T>
std::vector<std::int64_t> integers(const TensorView& dense, std::string_view argument) {
  std::vector<std::int64_t> values(dense.bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value = 0;
    std::memcpy(&value, dense.bytes.data() + i * sizeof value, sizeof value);
    require(std::in_range<std::int64_t>(value), argument, "integers below 2^63",
            fmt::format("{}", value));
    values[i] = static_cast<std::int64_t>(value);
  }
  return values;
}

}  // namespace

std::vector<std::int64_t> to_integers(const TensorView& tensor, std::string_view argument) {
  const HeldTensor dense = row_major(tensor);
  switch (tensor.type) {
    case ElementType::u8:
      return integers<std::uint8_t>(dense.view, argument);
    case ElementType::u16:
      return integers<std::uint16_t>(dense.view, argument);
    case ElementType::u32:
      return integers<std::uint32_t>(dense.view, argument);
    case ElementType::u64:
      return integers<std::uint64_t>(dense.view, argument);
    case ElementType::i8:
      return integers<std::int8_t>(dense.view, argument);
    case ElementType::i16:
      return integers<std::int16_t>(dense.view, argument);
    case ElementType::i32:
      return integers<std::int32_t>(dense.view, argument);
    case ElementType::i64:
      return integers<std::int64_t>(dense.view, argument);
    default:
      throw Error(argument, "integers", to_string(tensor.type));
  }
}

}  // namespace fp8lab
