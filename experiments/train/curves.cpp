#include "train/curves.hpp"

#include "common/spread.hpp"
#include "train/settings.hpp"

namespace fp8lab::experiments {

Series loss_band(const std::string& label, const std::vector<std::vector<double>>& runs) {
  std::vector<Series> curves;
  for (const auto& losses : runs) curves.push_back(loss_curve(label, losses));
  Series band = curves.front();
  if (curves.size() < 2) return band;
  for (std::size_t i = 0; i < band.x.size(); ++i) {
    std::vector<double> seeds;
    for (const Series& curve : curves) seeds.push_back(curve.y[i]);
    const Spread spread = spread_of(seeds);
    band.y[i] = spread.mean;
    band.low.push_back(std::isnan(spread.mean) ? spread.mean : spread.min);
    band.high.push_back(std::isnan(spread.mean) ? spread.mean : spread.max);
  }
  return band;
}

Series gap_band(const std::string& label, const std::vector<std::vector<double>>& runs,
                const std::vector<std::vector<double>>& references) {
  std::vector<std::vector<double>> gaps = runs;
  for (std::size_t s = 0; s < gaps.size(); ++s)
    for (std::size_t i = 0; i < gaps[s].size(); ++i) gaps[s][i] -= references[s][i];
  return loss_band(label, gaps);
}

}  // namespace fp8lab::experiments
