#include "fp8lab/product/grouped_product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/product/calls.hpp"
#include "fp8lab/product/groups.hpp"
#include "fp8lab/product/operand_epilogue.hpp"
#include "fp8lab/tensors/slices.hpp"

namespace fp8lab {
namespace {

using Shape = std::vector<std::int64_t>;

/// What keeps the operands of all groups alive.
struct Kept {
  std::shared_ptr<const void> operands;
  std::vector<std::shared_ptr<const void>> copies;
  std::optional<GroupScales> scale_a;
  std::optional<GroupScales> scale_b;
};

class Maker {
 public:
  Maker(const GemmOperands& operands, const GemmSpec& spec, const Groups& groups, bool model_known)
      : from_(operands), spec_(spec), model_known_(model_known) {
    if (model_known) require_model_or_call(spec);
    require(!operands.a.transposed, "A", "a tensor that is not transposed, with groups",
            "a transposed one");
    for (const auto& [name, operand] : {std::pair{"A", &operands.a}, {"B", &operands.b}})
      require(!operand->strides, name, "a dense tensor, with groups", "a part of a larger one");
    require(!is_table_call(spec.call), argument("call"),
            "a call by name: a table of calls has no groups", spec.call);
    require(!spec.epilogue.scale_by_amax, "output_scale",
            "a number: with groups, amax would be ambiguous (of one group, or of all)", "amax");
    require(!operands.a.inverse && !operands.b.inverse, "scales", "tensors, with groups",
            "scales that are already loaded");
    made_.groups = groups;
    made_.output = spec.output;
    kept_->operands = operands.owner;
    from_.owner = nullptr;
    for (ProductOperand* one : {&from_.a, &from_.b}) make_dense(one->codes);
    for (std::optional<TensorView>* tensor :
         {&from_.c, &from_.bias, &from_.row_scales, &from_.column_scales})
      if (*tensor) make_dense(**tensor);
  }

  GroupedProduct make() {
    if (made_.groups.kind == GroupKind::k_ends)
      along_k();
    else
      along_rows();
    return std::move(made_);
  }

 private:
  void make_dense(TensorView& tensor) {
    HeldTensor dense = row_major(tensor);
    tensor = dense.view;
    if (dense.owner) kept_->copies.push_back(std::move(dense.owner));
  }

  [[nodiscard]] bool stacked() const {
    return made_.groups.kind == GroupKind::batched || made_.groups.kind == GroupKind::row_counts;
  }

  void require_rank(std::string_view name, std::string_view shape, const TensorView& tensor,
                    std::size_t rank) const {
    require(tensor.shape.size() == rank, name,
            fmt::format("{}, for {}", shape, to_string(made_.groups.kind)),
            shape_text(tensor.shape));
  }

  void along_rows() {
    require_rank("A", stacked() ? "[groups, m, k]" : "[m, k]", from_.a.codes, stacked() ? 3 : 2);
    require_rank("B", from_.b.transposed ? "[groups, k, n]" : "[groups, n, k]", from_.b.codes, 3);
    made_.count = from_.b.codes.shape[0];
    n_ = from_.b.codes.shape[from_.b.transposed ? 2 : 1];
    const std::int64_t length = from_.a.codes.shape[stacked() ? 1 : 0];
    require(!stacked() || from_.a.codes.shape[0] == made_.count, "A",
            fmt::format("[{}, m, k], with as many groups as B", made_.count),
            shape_text(from_.a.codes.shape));
    set_shape(length, !stacked());
    require_tensor_scales();
    read_scales(length, from_.a.codes.shape.back());
    const std::vector<GroupPart> parts = parts_of(made_.groups, length, made_.count);
    for (const GroupPart& part : parts)
      made_.parts.push_back({part.group, first_row(part, length), product_of(part, length)});
    add_rest(parts, length);
  }

  [[nodiscard]] std::int64_t first_row(const GroupPart& part, std::int64_t length) const {
    return stacked() ? part.group * length + part.begin : part.begin;
  }

  void set_shape(std::int64_t m, bool one_matrix) {
    made_.columns = spec_.epilogue.activation == Activation::swiglu ? n_ / 2 : n_;
    made_.rows = one_matrix ? m : made_.count * m;
    made_.shape = one_matrix ? Shape{m, made_.columns} : Shape{made_.count, m, made_.columns};
    if (!from_.c) return;
    Shape of_sums = made_.shape;
    of_sums.back() = n_;
    require(from_.c->shape == of_sums, "C", shape_text(of_sums), shape_text(from_.c->shape));
    from_.c->shape = {made_.rows, n_};
  }

  /// One for all, or one a group.
  void require_tensor_scales() const {
    const auto check = [&](std::string_view name, const ProductOperand& operand) {
      const std::vector<float>& each = operand.group_tensor_scales;
      require(operand.tensor_scale == 1.0F || each.empty(), name,
              "one for all groups, or one per group", "both");
      require(each.empty() || each.size() == static_cast<std::size_t>(made_.count), name,
              fmt::format("one value, or {}, one per group", made_.count),
              fmt::format("{}", each.size()));
    };
    check("tensor_scale_a", from_.a);
    check("tensor_scale_b", from_.b);
  }

  [[nodiscard]] static float tensor_scale(const ProductOperand& operand, std::int64_t group) {
    const std::vector<float>& each = operand.group_tensor_scales;
    return each.empty() ? operand.tensor_scale : each[static_cast<std::size_t>(group)];
  }

  void read_scales(std::int64_t m, std::int64_t k) {
    const bool cut = made_.groups.kind == GroupKind::k_ends;
    require(from_.recipe.empty() || (!from_.a.scales && !from_.b.scales), "scales",
            "none, since the recipe makes them", "scales of your own");
    const auto read = [&](std::string_view name, bool of_groups, std::int64_t rows,
                          ProductOperand& operand, std::optional<GroupScales>& scales) {
      if (operand.scales)
        scales.emplace(ScaledOperand{std::string(name), of_groups, cut, made_.count, rows, k},
                       *operand.scales, operand.layout, operand.tiles);
      operand.scales.reset();
      operand.tiles.reset();
    };
    read("scale_a", stacked(), m, from_.a, kept_->scale_a);
    read("scale_b", !cut, n_, from_.b, kept_->scale_b);
  }

  /// A vector of `length` for all groups, or one of each: [count, 1] is one of each if that is the
  /// length, and else a column, which counts as a vector.
  [[nodiscard]] std::optional<TensorView> vector_of(const std::optional<TensorView>& tensor,
                                                    std::int64_t group, std::int64_t length) const {
    if (!tensor || tensor->shape.size() < 2 || tensor->shape[0] != made_.count) return tensor;
    if (tensor->shape[1] == 1 && length != 1) return tensor;
    return element(*tensor, group);
  }

  /// What stands around the sum of a part: rows [first, first + rows) of the output.
  void add_around(const GroupPart& part, std::int64_t first, std::int64_t rows, bool one_matrix,
                  GemmOperands& operands) const {
    operands.c = from_.c;
    if (from_.c) operands.c = slice(*from_.c, first, first + rows);
    operands.bias = vector_of(from_.bias, part.group, n_);
    operands.column_scales = vector_of(from_.column_scales, part.group, n_);
    operands.row_scales = from_.row_scales;
    if (!from_.row_scales) return;
    const std::int64_t length = made_.groups.kind == GroupKind::k_ends ? rows : a_rows();
    if (!one_matrix) operands.row_scales = vector_of(from_.row_scales, part.group, length);
    const Shape& shape = operands.row_scales->shape;
    require(!shape.empty() && shape[0] == length, "row_scales",
            one_matrix ? fmt::format("[{}]", length)
                       : fmt::format("[{}], or [{}, {}]", length, made_.count, length),
            shape_text(from_.row_scales->shape));
    if (made_.groups.kind != GroupKind::k_ends)
      operands.row_scales = slice(*operands.row_scales, part.begin, part.end);
  }

  [[nodiscard]] std::int64_t a_rows() const { return from_.a.codes.shape[stacked() ? 1 : 0]; }

  Product product_of(const GroupPart& part, std::int64_t length) {
    GemmOperands operands = from_;
    for (ProductOperand* one : {&operands.a, &operands.b}) {
      one->tensor_scale = tensor_scale(*one, part.group);
      one->group_tensor_scales.clear();
    }
    const TensorView& a = from_.a.codes;
    operands.a.codes = slice(stacked() ? element(a, part.group) : a, part.begin, part.end);
    operands.b.codes = element(from_.b.codes, part.group);
    if (kept_->scale_a && part.begin < part.end) operands.a.inverse = kept_->scale_a->of(part);
    if (!operands.a.inverse && operands.recipe.empty() && part.begin == part.end)
      operands.a.tensor_scale = 1.0F;  // there are no rows that it could scale
    if (kept_->scale_b) operands.b.inverse = kept_->scale_b->of({part.group, 0, n_});
    add_around(part, first_row(part, length), part.end - part.begin, !stacked(), operands);
    operands.owner = kept_;
    return in_group(part.group, [&] { return make_one(operands); });
  }

  template <typename Make>
  static Product in_group(std::int64_t group, const Make& make) {
    try {
      return make();
    } catch (const Error& error) {
      throw Error(fmt::format("group {}: {}", group, error.what()));
    }
  }

  [[nodiscard]] GemmSpec spec_for(const GemmOperands& operands) const {
    if (spec_.call.empty()) return spec_;
    const LibraryCall& call = find_library_call(spec_.call);
    const bool quantized = !from_.recipe.empty();  // parts without rows have no scales of their own
    require_scales(call, quantized || kept_->scale_a, quantized || kept_->scale_b);
    return with_call(call, operands, spec_);
  }

  [[nodiscard]] Product make_one(const GemmOperands& operands) const {
    if (!model_known_) return make_product_of_unknown_model(operands, spec_.output, spec_.epilogue);
    return make_product(operands, spec_for(operands));
  }

  /// Rows between the parts and behind them.
  void add_rest(const std::vector<GroupPart>& parts, std::int64_t length) {
    const auto add = [&](std::int64_t group, std::int64_t begin, std::int64_t end) {
      if (begin == end) return;
      const GroupPart part{group, begin, end};
      UngroupedRows rows{group, first_row(part, length), end - begin};
      try {
        rows.product = product_of(part, length);
      } catch (const Error&) {  // what stands there need not be valid
        rows.product.reset();
      }
      made_.rest.push_back(std::move(rows));
    };
    if (stacked()) {
      for (const GroupPart& part : parts) add(part.group, part.end, length);
      return;
    }
    std::int64_t at = 0;
    std::int64_t group = parts.empty() ? 0 : parts.front().group;
    for (const GroupPart& part : parts) {
      add(group, at, part.begin);
      at = part.end;
      group = part.group;
    }
    if (made_.count > 0) add(group, at, length);
  }

  /// A [m, K] and B [n, K] as one product, cut along K.
  void along_k() {
    require_rank("A", "[m, k of all groups]", from_.a.codes, 2);
    require_rank("B", from_.b.transposed ? "[k of all groups, n]" : "[n, k of all groups]",
                 from_.b.codes, 2);
    require(from_.recipe.empty(), "recipe", "none, with groups along k: quantize each group first",
            from_.recipe);
    made_.count = static_cast<std::int64_t>(made_.groups.values.size());
    n_ = from_.b.codes.shape[from_.b.transposed ? 1 : 0];
    const std::int64_t m = from_.a.codes.shape[0];
    const std::int64_t k = from_.a.codes.shape[1];
    set_shape(m, false);
    require_tensor_scales();
    read_scales(m, k);
    GemmOperands operands;
    operands.a = {.codes = from_.a.codes, .transposed = from_.a.transposed};
    operands.b = {.codes = from_.b.codes, .transposed = from_.b.transposed};
    // Tensor scales are set part by part: scales that are a group's own are not here.
    if (kept_->scale_a && kept_->scale_a->whole()) operands.a.inverse = kept_->scale_a->all();
    if (kept_->scale_b && kept_->scale_b->whole()) operands.b.inverse = kept_->scale_b->all();
    operands.owner = kept_;
    GemmSpec bare = spec_for(operands);
    bare.c_enters = CPlacement::unnamed;
    bare.epilogue = {};
    bare.split = {};
    made_.whole = model_known_ ? make_product(operands, bare)
                               : make_product_of_unknown_model(operands, spec_.output);
    made_.terms = parts_of(made_.groups, k, made_.count);
    for (const GroupPart& part : made_.terms)
      made_.parts.push_back(
          {part.group, part.group * m, in_group(part.group, [&] { return terms_of(part, m); })});
  }

  Product terms_of(const GroupPart& part, std::int64_t m) {
    Product product = take_k(*made_.whole, part.begin, part.end);
    GemmProblem& p = product.problem;
    GemmOperands around;
    add_around(part, part.group * m, m, false, around);
    const bool any = part.begin < part.end;
    if (any && kept_->scale_a && !kept_->scale_a->whole())
      around.a.inverse = p.scale_a = kept_->scale_a->of(part);
    if (any && kept_->scale_b && !kept_->scale_b->whole())
      around.b.inverse = p.scale_b = kept_->scale_b->of(part);
    if (any) {
      p.scale_a.tensor_scale = tensor_scale(from_.a, part.group);
      p.scale_b.tensor_scale = tensor_scale(from_.b, part.group);
    }
    around.a.codes = from_.a.codes;
    around.b.codes = from_.b.codes;
    const GemmSpec spec = spec_for(around);
    p.scale_order = spec.scale_order;
    p.c_enters = spec.c_enters;
    if (any) product.split = spec.split;  // there are no parts of nothing
    add_epilogue(around, spec, product);
    if (!model_known_) p = of_unknown_model(p);
    validate(p, product.sum_count());
    validate_split(product);
    return product;
  }

  GemmOperands from_;
  GemmSpec spec_;
  bool model_known_;
  std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
  GroupedProduct made_;
  std::int64_t n_ = 0;
};

}  // namespace

const GroupProduct* GroupedProduct::find(std::int64_t group) const {
  const GroupProduct* found = nullptr;
  for (const GroupProduct& part : parts)
    if (part.group == group && (found == nullptr || part.product.rows() > found->product.rows()))
      found = &part;
  return found;
}

GroupedProduct make_grouped_product(const GemmOperands& operands, const GemmSpec& spec,
                                    const Groups& groups) {
  return Maker(operands, spec, groups, true).make();
}

GroupedProduct make_grouped_product_of_unknown_model(const GemmOperands& operands,
                                                     const OutputCast& output, const Groups& groups,
                                                     const EpilogueSpec& epilogue) {
  GemmSpec spec;
  spec.output = output;
  spec.epilogue = epilogue;
  return Maker(operands, spec, groups, false).make();
}

std::vector<float> compute(const GroupedProduct& product, int threads) {
  std::vector<float> d(product.size());
  for (const GroupProduct& part : product.parts) {
    const std::vector<float> values = compute(part.product, threads);
    std::copy(values.begin(), values.end(), d.begin() + part.first_row * product.columns);
  }
  return d;
}

std::vector<std::byte> golden_output(const GroupedProduct& product, int threads) {
  return cast_output(compute(product, threads), product.output, threads);
}

NonFiniteReport count_non_finite(const GroupedProduct& product) {
  NonFiniteReport total;
  for (const GroupProduct& part : product.parts)
    for (const NamedNonFinite& one : count_non_finite(part.product)) {
      const auto same = std::find_if(total.begin(), total.end(), [&](const NamedNonFinite& other) {
        return other.name == one.name;
      });
      if (same == total.end())
        total.push_back(one);
      else
        same->counts += one.counts;
    }
  return total;
}

}  // namespace fp8lab
