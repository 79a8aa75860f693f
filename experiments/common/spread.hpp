#pragma once
// Mean and spread over repeats.

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp8lab::experiments {

/// The 99.5 % point of Student's t.
double student_t_995(std::size_t degrees_of_freedom);

/// Mean and half width of the interval that holds one further draw with a probability of 99 %, if
/// draws are normal and independent: Student's t with the standard deviation of these draws. The
/// mean of other repeats lies in it more often still.
struct Interval {
  double mean = 0.0;
  double half_width = std::numeric_limits<double>::quiet_NaN();  ///< NaN for fewer than 2 draws
};
Interval interval_of(std::span<const double> values);

struct Spread {
  double mean = 0.0;
  double min = 0.0;
  double max = 0.0;
  double half_width = std::numeric_limits<double>::quiet_NaN();  ///< as in `Interval`

  [[nodiscard]] Interval interval() const { return {mean, half_width}; }
};

/// Of at least one value; zeros for none.
Spread spread_of(std::span<const double> values);

/// Whether `a` lies below `b` beyond chance, both measured on the same draws: it does so in every
/// draw, and there are five of them (equal rows do that once in 32 times), or at least three, and
/// the interval that holds the mean difference with 99 % (Student's t) lies below zero. Of positive
/// values ratios are compared.
bool below_beyond_chance(std::span<const double> a, std::span<const double> b);

/// Those of `rows`, each measured on the same draws, that no other one lies below beyond chance, by
/// their place: one is the smallest, several are not told apart.
std::vector<std::size_t> smallest_of(std::span<const std::vector<double>> rows);
/// The same from above.
std::vector<std::size_t> largest_of(std::span<const std::vector<double>> rows);

/// `31.2 % (30.6 to 32)`: the mean of shares and their range, in percent.
std::string range_text(const Spread& shares);

/// What equal draws of a share of `elements` leave open: a count of 0 in each does not make 3 in
/// another one unlikely.
inline double share_resolution(std::size_t elements) { return 3.0 / static_cast<double>(elements); }

/// `25.7 ± 1.2`, times `factor`; without a half width the mean alone. `resolution`: the least half
/// width, before `factor`.
std::string interval_text(const Interval& interval, double factor = 1.0, double resolution = 0.0);
std::string interval_text(std::span<const double> values, double factor = 1.0,
                          double resolution = 0.0);

/// `164 [20.1, 1.3e+03]`: the mean of the logarithms and the interval that holds 99 % of single
/// draws of a positive quantity whose logarithm is nearer to a normal number than it is itself.
/// `interval_text` where a value is not positive. `most`: what no value exceeds, with its factor.
std::string log_interval_text(std::span<const double> values, double factor = 1.0,
                              double most = std::numeric_limits<double>::infinity());

/// The same of shares, in percent: `25.7 ± 1.2 %`, or `25.7 % (0 to 61)` where the interval would
/// leave 0 to 100 %. `factor`: 100 for shares of 1, 1 for shares in percent. `resolution` is in the
/// units of `values`.
std::string share_text(const Interval& interval, double factor = 100.0, double resolution = 0.0);
std::string share_text(std::span<const double> values, double factor = 100.0,
                       double resolution = 0.0);

/// What `±` in a finding means.
inline constexpr std::string_view kIntervalMeaning =
    "± or in brackets: the interval that holds 99 % of single draws";
/// What `mean [low, high]` in a finding means.
inline constexpr std::string_view kLogIntervalMeaning =
    "[]: the interval that holds 99 % of single draws, of logarithms";

}  // namespace fp8lab::experiments
