#include "common/tensor_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "common/tensors.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/metrics/sum.hpp"

namespace fp8lab::experiments {
namespace {

/// A kind and the range of its parameter; 0 and 0: it has none.
struct Kind {
  std::string_view name;
  double least = 0.0;
  double most = 0.0;
};
constexpr std::array<Kind, 7> kKinds{{{"normal"},
                                      {"uniform"},
                                      {"laplace"},
                                      {"student_t", 1.0, 1000.0},
                                      {"log_uniform", 0.1, 30.0},
                                      {"log_normal", 0.1, 30.0},
                                      {"outlier_channels", 1.0, 1e9}}};
constexpr const char* kTexts =
    "normal, uniform, laplace, student_t:DEGREES, log_uniform:DECADES, log_normal:DECADES, "
    "outlier_channels:MAGNITUDE, FILE.npy or FILE.safetensors[#TENSOR]";

double laplace(double uniform) {
  const double u = uniform - 0.5;
  return -std::copysign(std::log1p(-2.0 * std::abs(u)), u) / std::sqrt(2.0);
}

}  // namespace

TensorSource::TensorSource(std::string_view argument, const std::string& text) : name_(text) {
  const std::size_t hash = text.find('#');
  const std::string path = text.substr(0, hash);
  if (path.ends_with(".npy") || path.ends_with(".safetensors")) {
    matrix_ = read_tensor(argument, path, hash == std::string::npos ? "" : text.substr(hash + 1));
    return;
  }
  const std::size_t colon = text.find(':');
  kind_ = text.substr(0, colon);
  const auto* kind =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& k) { return k.name == kind_; });
  require(kind != kKinds.end(), argument, kTexts, "'" + text + "'");
  const bool given = colon != std::string::npos;
  require(given == (kind->most > 0.0), argument, kTexts, "'" + text + "'");
  if (!given) return;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, parameter_);
  require(read.ec == std::errc() && read.ptr == end && parameter_ >= kind->least &&
              parameter_ <= kind->most,
          argument, fmt::format("{}:NUMBER from {:g} to {:g}", kind_, kind->least, kind->most),
          "'" + text + "'");
  require(kind_ != "student_t" || parameter_ == std::floor(parameter_), argument,
          "student_t with an integer", "'" + text + "'");
}

std::vector<float> TensorSource::draw(const RandomStream& random, std::size_t rows,
                                      std::size_t columns) const {
  const std::size_t count = rows * columns;
  if (kind_.empty()) return window(random, rows, columns);
  if (kind_ == "normal") return normal(random, count, 1.0);
  if (kind_ == "uniform") return uniform(random, count, 0.0, 1.0);
  if (kind_ == "student_t") return student_t(random, count, static_cast<int>(parameter_), 1.0);
  if (kind_ == "log_uniform") return log_uniform(random, count, parameter_);
  if (kind_ == "log_normal") return log_normal(random, count, parameter_);
  if (kind_ == "outlier_channels") {
    OutlierChannels shape{.rows = rows, .channels = columns, .magnitude = parameter_};
    shape.outlier_channels = std::min(shape.outlier_channels, columns);
    return outlier_channels(random, shape);
  }
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(laplace(random.uniform(i)));
  return x;
}

std::vector<float> TensorSource::window(const RandomStream& random, std::size_t rows,
                                        std::size_t columns) const {
  const auto height = static_cast<std::size_t>(matrix_.rows);
  const auto width = static_cast<std::size_t>(matrix_.columns);
  const std::size_t size = matrix_.values.size();
  require(rows * columns <= size, name_, fmt::format("at least {} elements", rows * columns),
          fmt::format("{}", size));
  std::vector<float> x;
  x.reserve(rows * columns);
  if (rows > height || columns > width) {
    const std::size_t start = random.below(0, size);
    for (std::size_t i = 0; i < rows * columns; ++i)
      x.push_back(matrix_.values[(start + i) % size]);
    return x;
  }
  const std::size_t top = random.below(0, height);
  const std::size_t left = random.below(1, width);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      x.push_back(matrix_.values[(top + r) % height * width + (left + c) % width]);
  return x;
}

std::optional<TensorSource> find_source(std::string_view argument, const std::string& text) {
  if (text.empty()) return std::nullopt;
  return TensorSource(argument, text);
}

void normalize_rms(std::vector<float>& x, double rms) {
  PairwiseSum squares;
  for (const float v : x) squares.add(static_cast<double>(v) * static_cast<double>(v));
  if (squares.total() == 0.0) return;
  const double factor = rms / std::sqrt(squares.total() / static_cast<double>(x.size()));
  for (float& v : x) v = static_cast<float>(static_cast<double>(v) * factor);
}

}  // namespace fp8lab::experiments
