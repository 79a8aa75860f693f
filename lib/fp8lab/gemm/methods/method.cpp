#include "fp8lab/gemm/methods/method.hpp"

#include <bit>
#include <cmath>
#include <type_traits>

#include "fp8lab/gemm/pack.hpp"
#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab::gemm_detail {

bool Method::takes_start(float c, const RowSummary& a, const RowSummary& b) const {
  if (sums_.takes_everything) return true;
  if (c == 0.0F) return !(sums_.drops_negative_zero && std::signbit(c));
  return takes_c(c, static_cast<int>(std::bit_cast<std::uint32_t>(c) >> 23 & 255) - 127, a, b);
}

template <typename T>
void MethodOf<T>::start(std::span<const float> c, T* state) const {
  for (std::size_t i = 0; i < c.size(); ++i)
    if (c[i] != 0.0F && std::isfinite(c[i])) state[i] = static_cast<T>(c[i]);
}

template <typename T>
void MethodOf<T>::extract(const Kernels& /*kernels*/, const RowOfSums<T>& row) const {
  for (std::int64_t j = 0; j < row.width; ++j) {
    if constexpr (std::is_same_v<T, float>)
      row.out[j] = canonical(row.state[j]);
    else
      row.out[j] = static_cast<float>(row.state[j]);
  }
}

template <typename T>
StepBlock<T> MethodOf<T>::block_of(const TileSteps<T>& steps) const {
  const PackedRows<T>& rows = steps.rows;
  StepBlock<T> block;
  const std::int64_t first = (steps.first - rows.first) * rows.padded_rows;
  block.rows = rows.padded_rows;
  block.steps = steps.count;
  block.terms = form_.terms;
  block.fold = form_.fold;
  block.a = rows.values.data() + first * form_.terms;
  if (form_.has_exponents()) block.a_exponents = rows.exponents.data() + first * form_.terms;
  if (form_.fused()) block.a_signs = rows.signs.data() + first;
  steps.panel.place(block, steps.first);
  block.state = steps.state;
  block.low_state = steps.low_state;
  return block;
}

template class MethodOf<float>;
template class MethodOf<double>;

}  // namespace fp8lab::gemm_detail
