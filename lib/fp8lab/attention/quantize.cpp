#include "fp8lab/attention/quantize.hpp"

#include <fmt/format.h>

#include "fp8lab/core/error.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab {

QuantizedHeads quantize_heads(std::span<const float> values, std::int64_t heads, std::int64_t rows,
                              std::int64_t columns) {
  require(heads > 0 && rows > 0 && columns > 0, "values", "[heads, rows, columns], all above 0",
          fmt::format("[{}, {}, {}]", heads, rows, columns));
  require(static_cast<std::int64_t>(values.size()) == heads * rows * columns, "values",
          fmt::format("[{}, {}, {}] values", heads, rows, columns),
          fmt::format("{}", values.size()));
  QuantizedHeads result{heads, rows, columns, {}, {}};
  const Recipe& recipe = find_preset("te-current").activation;
  const auto size = static_cast<std::size_t>(rows * columns);
  for (std::size_t head = 0; head < static_cast<std::size_t>(heads); ++head) {
    const QuantizedTensor one =
        quantize(recipe, FloatMatrix{values.subspan(head * size, size), rows, columns}, false, 1);
    result.codes.insert(result.codes.end(), one.codes.begin(), one.codes.end());
    result.inverse_scales.push_back(one.inverse_scales.front());
  }
  return result;
}

}  // namespace fp8lab
