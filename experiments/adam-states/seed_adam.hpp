#pragma once
// The FP8Adam class of the FP8-LM summary, line by line, with the two repairs that let
// it run past its first step.

#include <cstdint>
#include <string_view>
#include <vector>

namespace fp8lab::experiments {

enum class SeedAdamVariant : std::uint8_t {
  as_written,       ///< m becomes an object without float(): the second step fails
  codes_as_values,  ///< m keeps its codes, m_scale stays 1
  scale_read_back,  ///< m_scale is the scale that m was quantized with
};
std::string_view to_string(SeedAdamVariant variant);

/// The listing in binary32 and FP16, one rounding an operation as torch does it:
/// gradients and m in E4M3 with scale 448 / max(amax, 1e-12), m and v decoded to binary32,
/// v and weights in plain FP16, no bias correction, no weight decay.
class SeedAdam {
 public:
  SeedAdam(SeedAdamVariant variant, const std::vector<float>& weights, float lr);

  /// Throws `Error` in the second step as written.
  void step(const std::vector<float>& gradient);

  [[nodiscard]] const std::vector<float>& weights() const { return weights_; }
  /// Elements whose update was not zero and whose FP16 weight did not move, over
  /// all elements of all steps.
  [[nodiscard]] double lost_share() const;

 private:
  SeedAdamVariant variant_;
  float lr_;
  std::vector<float> weights_;  ///< FP16 values
  std::vector<float> m_;        ///< decoded codes
  std::vector<float> v_;        ///< FP16 values
  float m_scale_ = 1.0F;
  bool m_is_object_ = false;
  std::uint64_t lost_ = 0;
  std::uint64_t updates_ = 0;
};

}  // namespace fp8lab::experiments
