#include "quantized_file.hpp"

#include <span>
#include <utility>

#include "fp8lab/tensors/packed.hpp"

namespace fp8lab::cli {

void QuantizedFile::add_codes(const std::string& name, const QuantizedTensor& q,
                              std::vector<std::int64_t> shape) {
  TensorView codes =
      view_of(element_type_of(q.format), std::move(shape), std::span<const std::uint8_t>(q.codes));
  if (packed(codes.type) != codes.type) {
    packed_.push_back(pack_codes(codes));
    codes = {packed(codes.type), codes.shape, packed_.back(), false};
  }
  tensors_.push_back({name, codes});
}

void QuantizedFile::add_two_levels(const std::string& name, const QuantizedTensor& q,
                                   const std::vector<std::int64_t>& tiles) {
  std::vector<float>& total = totals_.emplace_back();
  for (std::size_t t = 0; t < q.inverse_scales.size(); ++t)
    total.push_back(q.total_inverse_scale(t));
  tensors_.push_back(
      {name + ".scale_inv", view_of(ElementType::f32, tiles, std::span<const float>(total))});
  tensors_.push_back({name + ".scale_inv_ue4m3",
                      view_of(ElementType::e4m3fn, tiles, std::span<const std::uint8_t>(q.ue4m3))});
  tensors_.push_back(
      {name + ".tensor_scale_inv",
       view_of(ElementType::f32, {}, std::span<const float>(&q.tensor_inverse_scale, 1))});
}

void QuantizedFile::add(const std::string& name, const QuantizedTensor& q,
                        std::vector<std::int64_t> shape) {
  const std::vector<std::int64_t> tiles{q.tile_rows(), q.tile_columns()};
  add_codes(name, q, std::move(shape));
  tensors_.push_back(
      {name + ".scale", view_of(ElementType::f32, tiles, std::span<const float>(q.scales))});
  if (!q.ue4m3.empty()) return add_two_levels(name, q, tiles);
  tensors_.push_back({name + ".scale_inv",
                      view_of(ElementType::f32, tiles, std::span<const float>(q.inverse_scales))});
  if (!q.e8m0.empty())
    tensors_.push_back({name + ".scale_inv_e8m0", view_of(ElementType::e8m0fnu, tiles,
                                                          std::span<const std::uint8_t>(q.e8m0))});
}

}  // namespace fp8lab::cli
