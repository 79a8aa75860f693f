// Grouped products of every kind with every part around them: each group is the product of its own
// operands, cut out by hand.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/calls.hpp"
#include "fp8lab/product/grouped_product.hpp"

using namespace fp8lab;

namespace {

/// Some lines of a matrix [.., width].
template <typename T>
std::vector<T> lines_of(const std::vector<T>& from, const std::vector<std::int64_t>& lines,
                        std::int64_t width) {
  std::vector<T> taken;
  for (const std::int64_t line : lines)
    taken.insert(taken.end(), from.begin() + line * width, from.begin() + (line + 1) * width);
  return taken;
}

/// Columns [begin, end) of a matrix [.., width].
template <typename T>
std::vector<T> columns_of(const std::vector<T>& from, std::int64_t width, std::int64_t begin,
                          std::int64_t end) {
  std::vector<T> taken;
  for (auto line = from.begin(); line != from.end(); line += width)
    taken.insert(taken.end(), line + begin, line + end);
  return taken;
}

std::vector<std::int64_t> counted(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> places;
  for (std::int64_t i = begin; i < end; ++i) places.push_back(i);
  return places;
}

/// Rows of A and of the output that are one group's, with its terms.
struct GroupByHand {
  std::int64_t group;
  std::vector<std::int64_t> rows;  ///< of A, one after the other
  std::int64_t first_row;          ///< of the output
  std::int64_t begin;              ///< of K
  std::int64_t end;
};

enum class AnyScales { none, rows, tiles };
enum class AnyModel { named, call, unknown };

constexpr std::int64_t kTileTerms = 128;

class AnyGroups {
 public:
  explicit AnyGroups(std::uint64_t seed) : draws_(seed, "any groups") {
    constexpr std::array kKinds{GroupKind::batched, GroupKind::row_counts, GroupKind::row_ends,
                                GroupKind::row_indices, GroupKind::k_ends};
    kind_ = kKinds[static_cast<std::size_t>(pick(5))];
    count_ = 1 + pick(4);
    m_ = 2 + pick(6);
    outputs_ = 2 + pick(5);
    scales_ = static_cast<AnyScales>(pick(3));
    model_ = static_cast<AnyModel>(pick(3));
    cut_terms();
    cut_rows();
    constexpr std::array kOutputs{FormatId::f32, FormatId::bf16, FormatId::f16, FormatId::e4m3fn};
    spec_.output = default_output(kOutputs[static_cast<std::size_t>(pick(4))]);
    spec_.epilogue.activation = activations()[static_cast<std::size_t>(pick(7))];
    n_ = spec_.epilogue.activation == Activation::swiglu ? 2 * outputs_ : outputs_;
    if (pick(2) == 0) spec_.epilogue.alpha = 0.375F;
    if (pick(2) == 0) spec_.epilogue.slope = 0.3F;
    if (pick(2) == 0) spec_.epilogue.output_scale = 3.0F;
    if (scales_ == AnyScales::tiles || pick(2) == 0) spec_.promotion_interval = kTileTerms;
    if (pick(2) == 0) spec_.scale_order = ScaleOrder::a_then_b_then_add;
    turned_ = pick(2) == 0;
    one_matrix_ = kind_ == GroupKind::row_ends || kind_ == GroupKind::row_indices;
    fill();
  }

  void check() {
    const GemmOperands all = whole();
    const Groups groups{kind_, values_, 0};
    const GroupedProduct made =
        model_ == AnyModel::unknown
            ? make_grouped_product_of_unknown_model(all, spec_.output, groups, spec_.epilogue)
            : make_grouped_product(all, of_groups(), groups);
    const std::vector<float> got = compute(made, 1);
    const std::vector<std::byte> codes = golden_output(made, 1);
    const std::int64_t rows = one_matrix_ ? a_rows_ : count_ * m_;
    std::vector<float> expected(static_cast<std::size_t>(rows * outputs_));
    INFO(text_);
    REQUIRE(got.size() == expected.size());
    REQUIRE(made.parts.size() == groups_.size());
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const GroupByHand& group = groups_[i];
      CHECK(made.parts[i].group == group.group);
      CHECK(made.parts[i].first_row == group.first_row);
      CHECK(made.parts[i].product.rows() == static_cast<std::int64_t>(group.rows.size()));
      if (group.rows.empty()) continue;
      const Product one = by_hand(group);
      CHECK(describe(one.epilogue) == describe(made.parts[i].product.epilogue));
      CHECK(one.model == made.parts[i].product.model);
      const GemmProblem& p = made.parts[i].product.problem;
      CHECK(one.problem.promotion_interval == p.promotion_interval);
      CHECK(one.problem.scale_order == p.scale_order);
      CHECK(one.problem.c_enters == p.c_enters);
      const std::vector<float> d = compute(one, 1);
      std::copy(d.begin(), d.end(), expected.begin() + group.first_row * outputs_);
    }
    const auto bytes = [](const std::vector<float>& x) { return cast_output(x, {}, 1); };
    CHECK(bytes(got) == bytes(expected));
    CHECK(codes == cast_output(expected, spec_.output, 1));
  }

 private:
  std::int64_t pick(std::int64_t count) {
    return static_cast<std::int64_t>(draws_.below(next_++, static_cast<std::uint64_t>(count)));
  }
  [[nodiscard]] bool stacked() const {
    return kind_ == GroupKind::batched || kind_ == GroupKind::row_counts;
  }
  [[nodiscard]] bool along_k() const { return kind_ == GroupKind::k_ends; }

  void cut_terms() {
    // With one tile C could not enter among them.
    const std::int64_t least = scales_ == AnyScales::tiles && model_ != AnyModel::unknown ? 2 : 1;
    k_ = kTileTerms * (least + pick(3));
    if (!along_k()) return;
    k_ = 0;
    for (std::int64_t g = 0; g < count_; ++g) {
      const std::int64_t length = kTileTerms * (least + pick(2));
      groups_.push_back({g, counted(0, m_), g * m_, k_, k_ + length});
      k_ += length;
      values_.push_back(k_);
    }
    a_rows_ = m_;
  }

  void cut_rows() {
    if (stacked()) {
      a_rows_ = count_ * m_;
      for (std::int64_t g = 0; g < count_; ++g) {
        const std::int64_t rows = kind_ == GroupKind::batched ? m_ : pick(m_ + 1);
        if (kind_ == GroupKind::row_counts) values_.push_back(rows);
        groups_.push_back({g, counted(g * m_, g * m_ + rows), g * m_, 0, k_});
      }
    } else if (!along_k()) {
      std::int64_t row = 0;
      for (std::int64_t g = 0; g < count_; ++g) {
        const std::int64_t rows = (kind_ == GroupKind::row_indices ? 1 : 0) + pick(m_);
        if (kind_ == GroupKind::row_ends) values_.push_back(row + rows);
        for (std::int64_t i = 0; kind_ == GroupKind::row_indices && i < rows; ++i)
          values_.push_back(g);
        groups_.push_back({g, counted(row, row + rows), row, 0, k_});
        row += rows;
      }
      const std::int64_t rest = 1 + pick(3);
      for (std::int64_t i = 0; kind_ == GroupKind::row_indices && i < rest; ++i)
        values_.push_back(-1);
      a_rows_ = row + rest + (row + rest == count_ ? 1 : 0);
      if (kind_ == GroupKind::row_indices) values_.resize(static_cast<std::size_t>(a_rows_), -1);
    }
  }

  std::vector<float> floats(std::int64_t count) {
    std::vector<float> made;
    for (std::int64_t i = 0; i < count; ++i)
      made.push_back(static_cast<float>(0.5 + draws_.uniform(next_++)));
    return made;
  }
  std::vector<std::uint8_t> codes(std::int64_t count) {
    std::vector<std::uint8_t> made;
    for (std::int64_t i = 0; i < count; ++i)
      made.push_back(static_cast<std::uint8_t>((0x20 + pick(0x20)) | pick(2) << 7));
    return made;
  }

  void fill() {
    b_rows_ = along_k() ? n_ : count_ * n_;
    a_ = codes(a_rows_ * k_);
    b_ = codes(b_rows_ * k_);
    const std::int64_t tiles = scales_ == AnyScales::tiles ? k_ / kTileTerms : 1;
    // Along K rows have a scale of each group, tiles lie with the terms.
    const std::int64_t levels = along_k() && scales_ == AnyScales::rows ? count_ : 1;
    if (scales_ != AnyScales::none) {
      scale_a_ = floats(levels * a_rows_ * tiles);
      scale_b_ = floats(levels * b_rows_ * tiles);
      if (pick(2) == 0) tensor_a_ = floats(count_);
      if (pick(2) == 0) tensor_b_ = floats(count_);
      if (tensor_a_.empty() && pick(2) == 0) one_tensor_a_ = 0.75F;
    }
    const bool of_groups = count_ > 1 && pick(2) == 0;
    if (pick(2) == 0) bias_ = floats((of_groups ? count_ : 1) * n_);
    if (pick(2) == 0) column_scales_ = floats((of_groups ? count_ : 1) * n_);
    of_groups_ = of_groups;
    if (pick(2) == 0) row_scales_ = floats(one_matrix_ ? a_rows_ : (of_groups ? count_ : 1) * m_);
    if (pick(2) == 0) {
      c_ = floats((one_matrix_ ? a_rows_ : count_ * m_) * n_);
      if (pick(2) == 0)
        spec_.epilogue.beta = -1.5F;
      else if (model_ != AnyModel::unknown)
        spec_.c_enters = CPlacement::epilogue;
    }
    // Some places are not open to C where scales are a group's own.
    if (scales_ == AnyScales::tiles && spec_.c_enters == CPlacement::epilogue)
      spec_.c_enters = CPlacement::promoted_sum;
    text_ = fmt::format(
        "{}, {} groups of {} x {} x {}, {} rows of A, scales {}, model {}, {} parts around",
        to_string(kind_), count_, m_, n_, k_, a_rows_, static_cast<int>(scales_),
        static_cast<int>(model_), describe_around());
  }

  [[nodiscard]] std::string describe_around() const {
    return fmt::format("bias {}, columns {}, rows {}, C {}, {}, turned {}, of groups {}",
                       bias_.size(), column_scales_.size(), row_scales_.size(), c_.size(),
                       to_string(spec_.epilogue.activation), turned_, of_groups_);
  }

  /// The spec of all groups: a call, or a model.
  [[nodiscard]] GemmSpec of_groups() const {
    GemmSpec spec = spec_;
    if (model_ != AnyModel::call) return spec;
    spec.call = call_named().name;
    spec.model.clear();  // which the call sets, as these
    spec.promotion_interval = 0;
    spec.scale_order = ScaleOrder::product_then_fma;
    return spec;
  }

  [[nodiscard]] const LibraryCall& call_named() const {
    return find_library_call(scales_ == AnyScales::tiles ? "triton.block.hopper"
                                                         : "cublaslt.h100.slow");
  }

  /// [k, n] for [n, k], group by group.
  [[nodiscard]] std::vector<std::uint8_t> turned(const std::vector<std::uint8_t>& b, std::int64_t n,
                                                 std::int64_t k) const {
    std::vector<std::uint8_t> result;
    for (auto at = b.begin(); at != b.end(); at += n * k)
      for (std::int64_t i = 0; i < k; ++i)
        for (std::int64_t j = 0; j < n; ++j) result.push_back(at[j * k + i]);
    return result;
  }

  using Shape = std::vector<std::int64_t>;
  static TensorView view(const std::vector<float>& values, Shape shape) {
    return view_of(ElementType::f32, std::move(shape), std::span(values));
  }

  GemmOperands whole() {
    GemmOperands all;
    const ElementType e4m3 = ElementType::e4m3fn;
    all.a.codes = view_of(e4m3, stacked() ? Shape{count_, m_, k_} : Shape{a_rows_, k_},
                          std::span(std::as_const(a_)));
    turned_b_ = turned_ ? turned(b_, n_, k_) : b_;
    Shape of_b{turned_ ? k_ : n_, turned_ ? n_ : k_};
    if (!along_k()) of_b.insert(of_b.begin(), count_);
    all.b.codes = view_of(e4m3, of_b, std::span(std::as_const(turned_b_)));
    all.b.transposed = turned_;
    if (scales_ != AnyScales::none) {
      const std::int64_t tiles = scales_ == AnyScales::tiles ? k_ / kTileTerms : 1;
      const bool levels = along_k() && scales_ == AnyScales::rows;
      all.a.scales =
          view(scale_a_, stacked() || levels ? Shape{count_, m_, tiles} : Shape{a_rows_, tiles});
      all.b.scales =
          view(scale_b_, along_k() && !levels ? Shape{n_, tiles} : Shape{count_, n_, tiles});
      if (scales_ == AnyScales::tiles) all.a.tiles = all.b.tiles = ScaleTiles{1, kTileTerms};
      all.a.group_tensor_scales = tensor_a_;
      all.b.group_tensor_scales = tensor_b_;
      all.a.tensor_scale = one_tensor_a_;
    }
    const auto around = [&](const std::vector<float>& values, std::int64_t each) {
      return view(values, of_groups_ ? Shape{count_, each} : Shape{each});
    };
    if (!bias_.empty()) all.bias = around(bias_, n_);
    if (!column_scales_.empty()) all.column_scales = around(column_scales_, n_);
    if (!row_scales_.empty())
      all.row_scales = one_matrix_ ? view(row_scales_, {a_rows_}) : around(row_scales_, m_);
    if (!c_.empty()) all.c = view(c_, one_matrix_ ? Shape{a_rows_, n_} : Shape{count_, m_, n_});
    return all;
  }

  /// The product of one group's own operands.
  [[nodiscard]] Product by_hand(const GroupByHand& group) {
    const auto rows = static_cast<std::int64_t>(group.rows.size());
    const std::int64_t k = group.end - group.begin;
    const std::int64_t g = group.group;
    const std::vector<std::int64_t> of_b =
        along_k() ? counted(0, n_) : counted(g * n_, (g + 1) * n_);
    own_a_ = columns_of(lines_of(a_, group.rows, k_), k_, group.begin, group.end);
    own_b_ = columns_of(lines_of(b_, of_b, k_), k_, group.begin, group.end);
    GemmOperands one;
    one.a.codes = view_of(ElementType::e4m3fn, {rows, k}, std::span(std::as_const(own_a_)));
    one.b.codes = view_of(ElementType::e4m3fn, {n_, k}, std::span(std::as_const(own_b_)));
    if (scales_ != AnyScales::none) {
      const bool in_tiles = scales_ == AnyScales::tiles;
      const std::int64_t tiles = in_tiles ? k_ / kTileTerms : 1;
      const bool levels = along_k() && !in_tiles;
      const auto own = [&](const std::vector<float>& from, const std::vector<std::int64_t>& lines,
                           std::int64_t all) {
        std::vector<std::int64_t> places = lines;
        if (levels)
          for (std::int64_t& place : places) place += g * all;
        const std::vector<float> taken = lines_of(from, places, tiles);
        return in_tiles ? columns_of(taken, tiles, group.begin / kTileTerms, group.end / kTileTerms)
                        : taken;
      };
      own_scale_a_ = own(scale_a_, group.rows, m_);
      own_scale_b_ = own(scale_b_, of_b, n_);
      one.a.scales = view(own_scale_a_, {rows, in_tiles ? k / kTileTerms : 1});
      one.b.scales = view(own_scale_b_, {n_, in_tiles ? k / kTileTerms : 1});
      if (in_tiles) one.a.tiles = one.b.tiles = ScaleTiles{1, kTileTerms};
      const auto at = static_cast<std::size_t>(g);
      one.a.tensor_scale = tensor_a_.empty() ? one_tensor_a_ : tensor_a_[at];
      if (!tensor_b_.empty()) one.b.tensor_scale = tensor_b_[at];
    }
    const std::int64_t level = of_groups_ ? g : 0;
    own_bias_ = bias_.empty() ? bias_ : lines_of(bias_, {level}, n_);
    own_columns_ = column_scales_.empty() ? column_scales_ : lines_of(column_scales_, {level}, n_);
    if (!bias_.empty()) one.bias = view(own_bias_, {n_});
    if (!column_scales_.empty()) one.column_scales = view(own_columns_, {n_});
    if (!row_scales_.empty()) {
      std::vector<std::int64_t> places = group.rows;
      for (std::int64_t& place : places)
        if (!one_matrix_) place = level * m_ + (along_k() ? place : place - g * m_);
      own_rows_ = lines_of(row_scales_, places, 1);
      one.row_scales = view(own_rows_, {rows});
    }
    if (!c_.empty()) {
      own_c_ = lines_of(c_, counted(group.first_row, group.first_row + rows), n_);
      one.c = view(own_c_, {rows, n_});
    }
    if (model_ == AnyModel::unknown)
      return make_product_of_unknown_model(one, spec_.output, spec_.epilogue);
    return make_product(one,
                        model_ == AnyModel::call ? with_call(call_named(), one, spec_) : spec_);
  }

  RandomStream draws_;
  std::uint64_t next_ = 0;
  GroupKind kind_{};
  std::int64_t count_ = 0;
  std::int64_t m_ = 0;
  std::int64_t n_ = 0;
  std::int64_t outputs_ = 0;
  std::int64_t k_ = 0;
  std::int64_t a_rows_ = 0;
  std::int64_t b_rows_ = 0;
  AnyScales scales_{};
  AnyModel model_{};
  bool turned_ = false;
  bool one_matrix_ = false;
  bool of_groups_ = false;
  GemmSpec spec_{.model = "sm90.wgmma.e4m3"};
  std::vector<std::int64_t> values_;
  std::vector<GroupByHand> groups_;
  std::vector<std::uint8_t> a_, b_, turned_b_, own_a_, own_b_;
  std::vector<float> scale_a_, scale_b_, tensor_a_, tensor_b_, bias_, column_scales_, row_scales_;
  std::vector<float> c_, own_scale_a_, own_scale_b_, own_bias_, own_columns_, own_rows_, own_c_;
  float one_tensor_a_ = 1.0F;
  std::string text_;
};

}  // namespace

TEST_CASE("groups: of every kind and with every part, each is its own operands' product",
          "[product]") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    INFO("seed " << seed);
    AnyGroups(seed).check();
  }
}
