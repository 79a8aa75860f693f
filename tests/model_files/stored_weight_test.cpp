// Which shapes and types of scales fit a stored weight, and the tiles that they mean.

#include "fp8lab/model_files/stored_weight.hpp"

#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;

namespace {

using Shape = std::vector<std::int64_t>;

StoredWeight weight_of(const char* layout, StoredQuantization stored, TensorSpec codes,
                       TensorSpec scale) {
  StoredWeight weight;
  weight.codes = std::move(codes);
  weight.scale.spec = std::move(scale);
  weight.layout = &find_layout(layout);
  weight.stored = stored;
  weight.written.name = "w.weight";
  set_shapes(weight);
  return weight;
}

/// 300 x 200 codes in blocks of 128 x 64: 3 x 4 of them.
StoredWeight plain(Shape scales, ElementType type = ElementType::f32) {
  StoredQuantization stored;
  stored.row_block = 128;
  stored.k_block = 64;
  return weight_of("deepseek", stored, {"w.weight", ElementType::e4m3fn, {300, 200}},
                   {"w.weight_scale_inv", type, std::move(scales)});
}

}  // namespace

TEST_CASE("the shape of plain scales says their tiles", "[model_files]") {
  struct Case {
    Shape scales;
    Shape tile;
  };
  for (const Case& c : {Case{{}, {300, 200}}, Case{{1}, {300, 200}}, Case{{1, 1}, {300, 200}},
                        Case{{300}, {1, 200}}, Case{{300, 1}, {1, 200}}, Case{{3, 4}, {128, 64}}}) {
    const StoredWeight weight = plain(c.scales);
    INFO(shape_text(c.scales));
    CHECK(Shape{weight.row_block, weight.k_block} == c.tile);
    CHECK(Shape{weight.rows, weight.k} == Shape{300, 200});
    CHECK(weight.written.shape == Shape{300, 200});
  }
  for (const Shape& scales :
       {Shape{2}, Shape{200}, Shape{299}, Shape{12}, Shape{1, 300}, Shape{300, 2}, Shape{2, 4},
        Shape{4, 4}, Shape{3, 3}, Shape{3, 5}, Shape{4, 3}, Shape{3, 4, 1}, Shape{0}}) {
    INFO(shape_text(scales));
    CHECK_THROWS_WITH(
        plain(scales),
        contains("tensor 'w.weight_scale_inv'") &&
            contains("expected scales [1], [300], [300, 1] or [3, 4], got " + shape_text(scales)));
  }
  for (const ElementType type :
       {ElementType::f32, ElementType::bf16, ElementType::f16, ElementType::e8m0fnu})
    CHECK_NOTHROW(plain({3, 4}, type));
  for (const ElementType type : {ElementType::f64, ElementType::u8, ElementType::e4m3fn})
    CHECK_THROWS_AS(plain({3, 4}, type), Error);
}
