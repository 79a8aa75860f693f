#include "fp8lab/attention/report.hpp"

#include <fmt/format.h>

#include <utility>

#include "fp8lab/core/error.hpp"

namespace fp8lab {

AttentionTensor attention_tensor(std::vector<float> values, std::int64_t heads, std::int64_t rows,
                                 std::int64_t columns) {
  const auto owned =
      std::make_shared<const QuantizedHeads>(quantize_heads(values, heads, rows, columns));
  return {owned->operand(), std::move(values), owned};
}

AttentionTensor attention_tensor(const AttentionOperand& codes) {
  return {codes, dequantize(codes)};
}

std::vector<float> inverse_scales_of_heads(std::string_view argument, std::vector<float> values,
                                           std::int64_t heads) {
  const auto count = static_cast<std::size_t>(heads);
  if (values.empty()) values = {1.0F};
  if (values.size() == 1) values.resize(count, values.front());
  require(values.size() == count, argument,
          heads == 1 ? "1 inverse scale" : fmt::format("1 or {} inverse scales", heads),
          fmt::format("{}", values.size()));
  return values;
}

AttentionReport attention_report(const AttentionTensor& q, const AttentionTensor& k,
                                 const AttentionTensor& v, const AttentionOptions& options) {
  const AttentionInputs in{q.operand, k.operand, v.operand};
  AttentionReport report;
  report.result = attention(in, options);
  report.total.end = report.result.tiles.back().end;
  for (const AttentionTile& tile : report.result.tiles) report.total += tile;
  const bool from_codes = !q.owned && !k.owned && !v.owned;
  report.against_inputs =
      compare(attention_reference(in, q.values, k.values, v.values, options), report.result.o);
  report.against_codes = from_codes
                             ? report.against_inputs
                             : compare(attention_reference(in, dequantize(in.q), dequantize(in.k),
                                                           dequantize(in.v), options),
                                       report.result.o);
  return report;
}

}  // namespace fp8lab
