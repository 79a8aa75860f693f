#include <fmt/format.h>
#include <fmt/ranges.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "fp8lab/attention/measured_rows.hpp"
#include "fp8lab/core/parallel.hpp"

namespace fp8lab {
namespace {

double squared(double x) { return x * x; }

class ColumnMeasurement {
 public:
  ColumnMeasurement(const MeasuredRows& rows, AttentionMistakes& mistakes,
                    std::vector<std::string>& lines)
      : rows_(rows),
        inputs_(rows.inputs()),
        options_(rows.options()),
        mistakes_(mistakes),
        shape_(rows.shape()),
        lines_(lines) {}

  void run() {
    ends();
    tiles();
    rows_of_v();
  }

 private:
  // -- The columns that rows see --

  /// For each end b of what a row sees from `begin` on (or each begin with the right end), the
  /// relative squared distance of its output.
  [[nodiscard]] std::vector<double> apart_by_end(const MeasuredRow& row, bool right) const {
    const std::int64_t columns = rows_.few_columns();
    const RowWeights all = rows_.weights(row, row.scores, {0, shape_.n});
    const std::vector<double>& p = all.p;
    std::vector<double> o(static_cast<std::size_t>(columns), 0.0);
    std::vector<double> found(static_cast<std::size_t>(shape_.n) + 1, 1.0);
    double gg = 0.0;
    for (std::int64_t c = 0; c < columns; ++c) gg += squared(rows_.got_at(row, c));
    // A row that sees nothing is 0.
    if (gg == 0.0) found[static_cast<std::size_t>(right ? row.seen.begin : row.seen.end)] = 0.0;
    double sum = all.sink;
    const std::int64_t first = right ? row.seen.begin : row.seen.end - 1;
    const std::int64_t last = right ? shape_.n : -1;
    for (std::int64_t j = first; j != last; j += right ? 1 : -1) {
      const double one = p[static_cast<std::size_t>(j)];
      sum += one;
      double apart = 0.0;
      for (std::int64_t c = 0; c < columns; ++c) {
        double& own = o[static_cast<std::size_t>(c)];
        own += one * static_cast<double>(rows_.v_row(row.head / shape_.group, j)[c]);
        apart += squared(own / sum - rows_.got_at(row, c));
      }
      found[static_cast<std::size_t>(right ? j + 1 : j)] = gg > 0.0 ? apart / gg : 1.0;
    }
    return found;
  }

  /// One way in which the ends of rows depend on the row.
  struct Ends {
    std::string name;
    std::string text;
    std::function<std::int64_t(std::int64_t)> of_row;
    double apart = 0.0;
  };

  void ends() {
    constexpr std::size_t kMostRows = 32;
    for (const bool right : {true, false}) {
      std::vector<const MeasuredRow*> rows;
      for (std::size_t i = 0; i < rows_.all().size() && rows.size() < kMostRows; ++i)
        if (rows_.all()[i].seen.end > rows_.all()[i].seen.begin) rows.push_back(&rows_.all()[i]);
      if (rows.empty()) return;
      std::vector<std::vector<double>> apart(rows.size());
      parallel_for(static_cast<std::int64_t>(rows.size()), threads_of(options_),
                   [&](std::int64_t i) {
                     apart[static_cast<std::size_t>(i)] =
                         apart_by_end(*rows[static_cast<std::size_t>(i)], right);
                   });
      const auto mean = [&](const std::function<std::int64_t(std::int64_t)>& of_row) {
        double sum = 0.0;
        for (std::size_t i = 0; i < rows.size(); ++i)
          sum += apart[i][static_cast<std::size_t>(
              std::clamp<std::int64_t>(of_row(rows[i]->row), 0, shape_.n))];
        return sum / static_cast<double>(rows.size());
      };
      const double expected = mean([&](std::int64_t row) {
        const SeenColumns seen = seen_columns(shape_, options_, row);
        return right ? seen.end : seen.begin;
      });
      std::vector<Ends> found = right ? right_ends() : left_ends();
      for (Ends& one : found) one.apart = mean(one.of_row);
      std::ranges::stable_sort(found, {}, &Ends::apart);
      constexpr std::size_t kMostTried = 6;
      for (std::size_t i = 0; i < std::min(kMostTried, found.size()); ++i)
        if (found[i].apart < kExplained && found[i].apart < 0.5 * expected)
          add_ends(found[i], right);
    }
  }

  [[nodiscard]] std::int64_t right_window() const {
    return options_.causal ? 0 : options_.window_right;
  }

  [[nodiscard]] std::vector<Ends> right_ends() const {
    std::vector<Ends> found;
    const std::int64_t apart = shape_.n - shape_.m;
    const std::int64_t own = right_window();
    for (std::int64_t end = 1; end < shape_.n; ++end)
      found.push_back({"columns_unread",
                       fmt::format("columns from {} on are not read (measured)", end),
                       [=, this](std::int64_t row) {
                         return std::min(end, seen_columns(shape_, options_, row).end);
                       },
                       0.0});
    for (std::int64_t by = -shape_.n; by <= shape_.n; ++by) {
      const bool corner = own != kNoWindow && apart != 0 && by == own - apart;
      found.push_back(
          {corner                                        ? "mask_alignment"
           : own != kNoWindow && std::abs(by - own) == 1 ? "mask_off_by_one"
                                                         : "mask",
           corner
               ? fmt::format("the mask starts in the upper left corner: row i sees columns up to "
                             "i + {}, not i + n - m + {}",
                             own, own)
               : fmt::format("row i sees columns up to i + n - m {} {} (measured)",
                             by < 0 ? '-' : '+', std::abs(by)),
           [=](std::int64_t row) { return row + apart + by + 1; }, 0.0});
    }
    if (own == kNoWindow) return found;
    const std::int64_t tile = options_.kv_tile;
    const std::int64_t block = options_.q_tile;
    const auto usual = [=](std::int64_t row) { return row + apart + own + 1; };
    found.push_back({"mask_of_tiles", "nothing is hidden in the tile at the mask's edge",
                     [=](std::int64_t row) { return (usual(row) + tile - 1) / tile * tile; }, 0.0});
    found.push_back({"mask_of_tiles", "the tile at the mask's edge is left out",
                     [=](std::int64_t row) { return usual(row) / tile * tile; }, 0.0});
    found.push_back({"mask_of_tiles", "all rows of a block see what its last row sees",
                     [=, m = shape_.m](std::int64_t row) {
                       return usual(std::min(m, row / block * block + block) - 1);
                     },
                     0.0});
    found.push_back(
        {"mask_of_tiles", "all tiles that a row of the block sees are seen by all of them",
         [=, m = shape_.m](std::int64_t row) {
           return (usual(std::min(m, row / block * block + block) - 1) + tile - 1) / tile * tile;
         },
         0.0});
    return found;
  }

  [[nodiscard]] std::vector<Ends> left_ends() const {
    std::vector<Ends> found;
    const std::int64_t apart = shape_.n - shape_.m;
    const std::int64_t own = options_.window_left;
    for (std::int64_t begin = 1; begin < shape_.n; ++begin)
      found.push_back({"columns_unread",
                       fmt::format("columns before {} are not read (measured)", begin),
                       [=, this](std::int64_t row) {
                         return std::max(begin, seen_columns(shape_, options_, row).begin);
                       },
                       0.0});
    for (std::int64_t by = -shape_.n; by <= shape_.n; ++by)
      found.push_back({own != kNoWindow && std::abs(by - own) == 1 ? "mask_off_by_one" : "mask",
                       fmt::format("row i sees columns from i + n - m {} {} on (measured)",
                                   by < 0 ? '+' : '-', std::abs(by)),
                       [=](std::int64_t row) { return row + apart - by; }, 0.0});
    if (own == kNoWindow) return found;
    const std::int64_t tile = options_.kv_tile;
    found.push_back({"mask_of_tiles", "nothing is hidden in the tile at the window's left edge",
                     [=](std::int64_t row) {
                       return std::max<std::int64_t>(row + apart - own, 0) / tile * tile;
                     },
                     0.0});
    return found;
  }

  void add_ends(const Ends& one, bool right) {
    mistakes_.add(one.name, one.text, [&](AttentionMistake& m) {
      for (std::int64_t row = 0; row < shape_.m; ++row) {
        SeenColumns seen = seen_columns(shape_, options_, row);
        const std::int64_t end = std::clamp<std::int64_t>(one.of_row(row), 0, shape_.n);
        (right ? seen.end : seen.begin) = end;
        seen.begin = std::min(seen.begin, seen.end);
        m.variant.seen.push_back(seen);
      }
    });
  }

  // -- Weights of tiles --

  void tiles() {
    const std::int64_t count = (shape_.n + options_.kv_tile - 1) / options_.kv_tile;
    if (count < 2) return;
    // At least two equations for each weight.
    const std::int64_t joined = (2 * count + shape_.d_v - 1) / shape_.d_v;
    const std::int64_t groups = (count + joined - 1) / joined;
    std::vector<std::vector<double>> found(static_cast<std::size_t>(groups));
    for (const MeasuredRow& row : rows_.all()) {
      const std::vector<double> w = tile_weights(row, joined, groups);
      for (std::size_t t = 0; t < w.size(); ++t)
        if (std::isfinite(w[t])) found[t].push_back(w[t]);
    }
    std::vector<std::pair<double, std::int64_t>> unlike;
    std::vector<double> middle;
    for (std::int64_t t = 0; t < groups; ++t) {
      std::vector<double>& w = found[static_cast<std::size_t>(t)];
      if (w.empty()) {
        middle.push_back(1.0);
        continue;
      }
      std::ranges::nth_element(w, w.begin() + std::ssize(w) / 2);
      middle.push_back(w[w.size() / 2]);
      const double apart = std::abs(middle.back() - 1.0);
      if (apart > 0.4) unlike.emplace_back(-apart, t);
    }
    if (unlike.empty()) return;
    std::ranges::sort(unlike);
    if (middle.size() <= 16)
      lines_.push_back(
          fmt::format("weights of the tiles of K and V, from the first column on: {:.2g}",
                      fmt::join(middle, " ")));
    else
      lines_.push_back(fmt::format("weight of the tiles from column {} on: {:.2g}",
                                   unlike.front().second * joined * options_.kv_tile,
                                   middle[static_cast<std::size_t>(unlike.front().second)]));
    constexpr std::size_t kMostTried = 3;
    for (std::size_t i = 0; i < std::min(kMostTried, unlike.size()); ++i)
      for (std::int64_t t = unlike[i].second * joined;
           t < std::min(count, (unlike[i].second + 1) * joined); ++t)
        mistakes_.add_tile(t);
  }

  /// Weights of groups of tiles in one row relative to the usual one; NaN where it sees nothing.
  [[nodiscard]] std::vector<double> tile_weights(const MeasuredRow& row, std::int64_t joined,
                                                 std::int64_t groups) const {
    const std::vector<double> p = rows_.weights(row, row.scores, row.seen).p;
    Eigen::MatrixXd a = Eigen::MatrixXd::Zero(shape_.d_v, groups);
    for (std::int64_t j = row.seen.begin; j < row.seen.end; ++j) {
      const float* v = rows_.v_row(row.head / shape_.group, j);
      const std::int64_t group = j / options_.kv_tile / joined;
      for (std::int64_t c = 0; c < shape_.d_v; ++c)
        a(c, group) += p[static_cast<std::size_t>(j)] * static_cast<double>(v[c]);
    }
    std::vector<std::int64_t> used;
    for (std::int64_t g = 0; g < groups; ++g)
      if (a.col(g).norm() > 0.02 * a.norm()) used.push_back(g);
    std::vector<double> w(static_cast<std::size_t>(groups),
                          std::numeric_limits<double>::quiet_NaN());
    if (used.size() < 2) return w;
    Eigen::MatrixXd part(shape_.d_v, std::ssize(used));
    for (std::int64_t i = 0; i < std::ssize(used); ++i)
      part.col(i) = a.col(used[static_cast<std::size_t>(i)]);
    Eigen::VectorXd g(shape_.d_v);
    for (std::int64_t c = 0; c < shape_.d_v; ++c) g(c) = rows_.got_at(row, c);
    const Eigen::VectorXd solved = part.colPivHouseholderQr().solve(g);
    std::vector<double> sorted(solved.data(), solved.data() + solved.size());
    std::ranges::nth_element(sorted, sorted.begin() + std::ssize(sorted) / 2);
    const double usual = sorted[sorted.size() / 2];
    for (std::size_t i = 0; i < used.size(); ++i)
      w[static_cast<std::size_t>(used[i])] = solved(static_cast<std::int64_t>(i)) / usual;
    return w;
  }

  // -- The order of V's rows --

  void rows_of_v() {
    for (const std::int64_t group : {8, 16}) {
      if (shape_.n % group != 0) continue;
      const std::int64_t unknowns = group * group;
      if (std::ssize(rows_.all()) * shape_.d_v < 2 * unknowns) continue;
      const Eigen::VectorXd solved = solve_rows(group);
      std::vector<std::int64_t> from;
      std::vector<char> taken(static_cast<std::size_t>(group), 0);
      for (std::int64_t r = 0; r < group; ++r) {
        Eigen::Index best = 0;
        const double most = solved.segment(r * group, group).maxCoeff(&best);
        if (most < 0.5 || taken[static_cast<std::size_t>(best)] != 0) break;
        taken[static_cast<std::size_t>(best)] = 1;
        from.push_back(best);
      }
      if (std::ssize(from) != group) continue;
      bool other = false;
      for (std::int64_t r = 0; r < group; ++r) other |= from[static_cast<std::size_t>(r)] != r;
      if (!other) continue;
      mistakes_.add("permuted_rows",
                    fmt::format("in each group of {} rows of V, rows {} in the places of 0 1 ... "
                                "(measured)",
                                group, fmt::join(from, " ")),
                    [&](AttentionMistake& m) {
                      m.inputs.v = mistakes_.operands().with_rows(
                          inputs_.v, shape_.n, [&](std::int64_t row) {
                            return row - row % group + from[static_cast<std::size_t>(row % group)];
                          });
                    });
      return;
    }
  }

  /// Least squares for M of got = sum over r and k of M[r, k] sum over groups of p[r] v[k].
  [[nodiscard]] Eigen::VectorXd solve_rows(std::int64_t group) const {
    const std::int64_t unknowns = group * group;
    Eigen::MatrixXd squares = Eigen::MatrixXd::Zero(unknowns, unknowns);
    Eigen::VectorXd products = Eigen::VectorXd::Zero(unknowns);
    Eigen::MatrixXd equations(shape_.d_v, unknowns);
    for (const MeasuredRow& row : rows_.all()) {
      const RowWeights w = rows_.weights(row, row.scores, row.seen);
      const std::vector<double>& p = w.p;
      double sum = w.sink;
      for (const double one : p) sum += one;
      equations.setZero();
      for (std::int64_t j = row.seen.begin; j < row.seen.end; ++j) {
        const double one = p[static_cast<std::size_t>(j)] / sum;
        for (std::int64_t k = 0; k < group; ++k) {
          const float* v = rows_.v_row(row.head / shape_.group, j - j % group + k);
          for (std::int64_t c = 0; c < shape_.d_v; ++c)
            equations(c, j % group * group + k) += one * static_cast<double>(v[c]);
        }
      }
      Eigen::VectorXd g(shape_.d_v);
      for (std::int64_t c = 0; c < shape_.d_v; ++c) g(c) = rows_.got_at(row, c);
      if (!g.allFinite()) continue;
      squares.selfadjointView<Eigen::Lower>().rankUpdate(equations.transpose());
      products += equations.transpose() * g;
    }
    return squares.selfadjointView<Eigen::Lower>().ldlt().solve(products);
  }

  const MeasuredRows& rows_;
  const AttentionInputs& inputs_;
  const AttentionOptions& options_;
  AttentionMistakes& mistakes_;
  AttentionShape shape_;
  std::vector<std::string>& lines_;
};

}  // namespace

void measure_columns(const MeasuredRows& rows, AttentionMistakes& mistakes,
                     std::vector<std::string>& lines) {
  ColumnMeasurement(rows, mistakes, lines).run();
}

}  // namespace fp8lab
