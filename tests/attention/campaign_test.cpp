// Broken attention kernels, each checked: caught, and named?

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention/campaign.hpp"

namespace fp8lab::attention_campaign_test {
namespace {

using test::AttentionLaunch;
using test::AttentionProblem;
using Index = std::int64_t;

class Campaign {
 public:
  std::vector<test::AttentionFault> faults() {
    scales();
    masks();
    tiles();
    heads();
    softmax();
    p_of_softmax();
    memory();
    outputs();
    return std::move(faults_.all);
  }

 private:
  using Change = test::AttentionFaults::Change;
  using Overwrite = test::AttentionFaults::Overwrite;

  void launch(const std::string& what, std::vector<std::string> right, const std::string& text,
              const AttentionProblem& p, const Change& change, bool seen_under_noise = true) {
    faults_.launch(what, std::move(right), text, p, change, seen_under_noise);
  }
  void overwrite(const std::string& what, std::vector<std::string> right, const std::string& text,
                 const AttentionProblem& p, const Overwrite& change) {
    faults_.overwrite(what, std::move(right), text, p, change);
  }

  void scales() {
    const auto one = [](Index) { return 1.0F; };
    launch("Q's scales left out", {"missing_scale"}, "scales of Q left", plain_,
           [=](AttentionLaunch& l) { l.scale_q = one; });
    launch("K's scales left out", {"missing_scale"}, "scales of K left", plain_,
           [=](AttentionLaunch& l) { l.scale_k = one; });
    launch("V's scales left out", {"missing_scale"}, "scales of V left", plain_,
           [=](AttentionLaunch& l) { l.scale_v = one; });
    launch("the scales of Q, K and V left out", {"missing_scale"}, "Q, K and V left", plain_,
           [=](AttentionLaunch& l) { l.scale_q = l.scale_k = l.scale_v = one; });
    launch("K's scale of the first head for all", {"scale_of_head"}, "K's first head", plain_,
           [](AttentionLaunch& l) { l.scale_k = [&l](Index) { return l.p.scale_k[0]; }; });
    launch("V's scale of the other head", {"scale_of_next_head", "scale_of_previous_head"}, "V",
           plain_, [](AttentionLaunch& l) {
             l.scale_v = [&l](Index h) {
               return l.p.scale_v[static_cast<std::size_t>(1 - l.kv(h))];
             };
           });
    launch("Q's scale per tensor", {"scale_per_tensor"}, "per tensor", plain_,
           [](AttentionLaunch& l) {
             l.scale_q = [&l](Index) { return std::ranges::max(l.p.scale_q); };
           });
    launch("Q's scale inverted", {"inverted_scale"}, "Q divided", plain_, [](AttentionLaunch& l) {
      l.scale_q = [right = l.scale_q](Index h) { return 1.0F / right(h); };
    });
    launch("K's scale twice", {"scale_twice"}, "K applied twice", plain_, [](AttentionLaunch& l) {
      l.scale_k = [right = l.scale_k](Index h) { return right(h) * right(h); };
    });
    launch(
        "Q's scales permuted", {"wrong_scale"}, "Q's scales are", plain_, [](AttentionLaunch& l) {
          l.scale_q = [&l](Index h) {
            return l.p.scale_q[std::vector<std::size_t>{2, 0, 3, 1}[static_cast<std::size_t>(h)]];
          };
        });
  }

  void masks() {
    const auto mask = [&](const std::string& what, std::vector<std::string> right,
                          const std::string& text, const AttentionProblem& p,
                          const std::function<bool(Index, Index)>& sees) {
      launch(what, std::move(right), text, p, [sees](AttentionLaunch& l) {
        l.sees = [sees](Index, Index i, Index j) { return sees(i, j); };
      });
    };
    constexpr Index kApart = 64;  // n - m
    mask("no mask", {"no_mask"}, "no mask", causal_, [](Index, Index) { return true; });
    mask("one column too many", {"mask_off_by_one"}, "", causal_,
         [](Index i, Index j) { return j <= i + kApart + 1; });
    mask("strictly below the diagonal", {"mask_off_by_one"}, "- 1", causal_,
         [](Index i, Index j) { return j < i + kApart; });
    mask("the mask from the upper left corner", {"mask_alignment"}, "upper left", causal_,
         [](Index i, Index j) { return j <= i; });
    mask("no window", {"no_window"}, "left", windowed_,
         [](Index i, Index j) { return j <= i + kApart; });
    mask("a window that is one too wide", {"mask_off_by_one"}, "left", windowed_,
         [](Index i, Index j) { return j <= i + kApart && j >= i + kApart - 25; });
    mask("nothing hidden at the mask's edge", {"mask_of_tiles"}, "nothing is hidden", causal_,
         [](Index i, Index j) { return j < (i + kApart + 64) / 64 * 64; });
    mask("rows of a block see what the last one sees", {"mask_of_tiles"}, "its last row", causal_,
         [](Index i, Index j) { return j <= i / 32 * 32 + 31 + kApart; });
    mask("a causal mask that is not wanted", {"mask"}, "causal", plain_,
         [](Index i, Index j) { return j <= i + kApart; });
  }

  void tiles() {
    launch("a tile left out", {"tile_skipped"}, "tile 1", plain_, [](AttentionLaunch& l) {
      l.tiles = [](Index, Index) { return std::vector<Index>{2, 0}; };
    });
    launch("the first tile twice", {"tile_twice"}, "tile 0", plain_, [](AttentionLaunch& l) {
      l.tiles = [](Index, Index) { return std::vector<Index>{2, 1, 0, 0}; };
    });
    launch("a tile left out by one block of one head", {"tile_skipped"}, "head 2", plain_,
           [](AttentionLaunch& l) {
             l.tiles = [&l](Index h, Index block) {
               return h == 2 && block == 1 ? std::vector<Index>{1, 0} : l.usual_tiles(h, block);
             };
           });
    launch("a tile of many left out", {"tile_skipped"}, "tile 13", long_, [](AttentionLaunch& l) {
      l.tiles = [&l](Index h, Index block) {
        std::vector<Index> order = l.usual_tiles(h, block);
        std::erase(order, 13);
        return order;
      };
    });
    const auto never = [](Index, Index) { return false; };
    launch("O not rescaled", {"o_not_rescaled"}, "O is not", plain_,
           [=](AttentionLaunch& l) { l.rescales_o = never; });
    launch("the row sum not rescaled", {"sum_not_rescaled"}, "row sum is not", plain_,
           [=](AttentionLaunch& l) { l.rescales_sum = never; });
    launch("nothing rescaled", {"nothing_rescaled"}, "neither", plain_,
           [=](AttentionLaunch& l) { l.rescales_sum = l.rescales_o = never; });
    launch("O not rescaled before one tile", {"o_not_rescaled"}, "tile 0", plain_,
           [](AttentionLaunch& l) { l.rescales_o = [](Index, Index t) { return t != 0; }; });
    launch("V of the tile before", {"stale_tile"}, "V of tile 0", plain_, [](AttentionLaunch& l) {
      l.v = [right = l.v](Index h, Index j, Index c) {
        return right(h, j >= 64 && j < 128 ? j - 64 : j, c);
      };
    });
    launch("the maximum of the first tile", {"stale_maximum"}, "first tile", plain_,
           [](AttentionLaunch& l) {
             l.maximum = [](float old, float found) { return std::isinf(old) ? found : old; };
           });
  }

  void heads() {
    const auto reads = [&](const std::string& what, const std::string& text, bool k, bool v,
                           const std::function<Index(Index)>& from) {
      launch(what, {"head_mapping"}, text, plain_, [=](AttentionLaunch& l) {
        if (k) {
          l.k = [&l, from](Index h, Index j, Index c) { return l.k_of(from(h), j, c); };
          l.scale_k = [&l, from](Index h) {
            return l.p.scale_k[static_cast<std::size_t>(from(h))];
          };
        }
        if (v) {
          l.v = [&l, from](Index h, Index j, Index c) { return l.v_of(from(h), j, c); };
          l.scale_v = [&l, from](Index h) {
            return l.p.scale_v[static_cast<std::size_t>(from(h))];
          };
        }
      });
    };
    reads("all heads on KV head 0", "KV head 0", true, true, [](Index) { return 0; });
    reads("KV head h mod kv_heads", "mod kv_heads", true, true, [](Index h) { return h % 2; });
    reads("V's heads apart from K's", "of V alone", false, true, [](Index h) { return h % 2; });
    reads("KV heads exchanged", "measured", true, true, [](Index h) { return 1 - h / 2; });
    launch("heads of Q exchanged", {"head_mapping"}, "heads of Q 0 2 1 3", plain_,
           [](AttentionLaunch& l) {
             const auto from = [](Index h) { return h == 1 || h == 2 ? 3 - h : h; };
             l.q = [from, right = l.q](Index h, Index i, Index c) { return right(from(h), i, c); };
             l.scale_q = [from, right = l.scale_q](Index h) { return right(from(h)); };
           });
  }

  void softmax() {
    launch("no scale of the softmax", {"softmax_scale"}, "without its scale", plain_,
           [](AttentionLaunch& l) { l.softmax = 1.0; });
    launch("1 / d as the scale", {"softmax_scale"}, "1 / d", plain_,
           [](AttentionLaunch& l) { l.softmax = 1.0 / 64.0; });
    launch("a scale that nobody knows", {"softmax_scale"}, "measured", plain_,
           [](AttentionLaunch& l) { l.softmax = 0.0931; });
    launch("exp2 without log2 e", {"log2e"}, "without log2 e", plain_,
           [](AttentionLaunch& l) { l.log2e = 1.0; });
    launch("no division by the row sum", {"no_division"}, "not divided", plain_,
           [](AttentionLaunch& l) {
             l.finish = [](float o, float, float scale) { return o * scale; };
           });
    launch("no maximum", {"no_maximum"}, "no maximum", plain_,
           [](AttentionLaunch& l) { l.maximum = [](float, float) { return 0.0F; }; });
  }

  void p_of_softmax() {
    launch("the row sum after the cast", {"sum_after_cast"}, "after its cast", plain_,
           [](AttentionLaunch& l) { l.summed = [](float, float cast) { return cast; }; });
    launch("P in E5M2", {"p_format"}, "e5m2", plain_, [](AttentionLaunch& l) {
      l.p_format = FormatId::e5m2;
      l.pv_model = "sm90.wgmma.e5m2.e4m3";
    });
    launch("P without its factor", {"p_offset"}, "2^0", plain_,
           [](AttentionLaunch& l) { l.offset = 0.0F; });
    launch("a stale maximum that saturates P", {"stale_maximum_saturates_p"}, "saturates in e4m3fn",
           long_, [](AttentionLaunch& l) { l.threshold = 4.0F; });
    launch("P cut in its cast", {"p_cast"}, "cut", plain_,
           [](AttentionLaunch& l) { l.p_cast = {.rounding = RoundingMode::toward_zero}; });
    launch(
        "each tile promoted", {"promotion"}, "added to O in FP32", plain_,
        [](AttentionLaunch& l) { l.promotes = true; }, false);
    launch("tiles from the first to the last", {"tile_order"}, "first to last", plain_,
           [](AttentionLaunch& l) {
             l.tiles = [](Index, Index) { return std::vector<Index>{0, 1, 2}; };
           });
  }

  void memory() {
    launch("rows of V exchanged in pairs", {"permuted_rows"}, "xor 1 in the place of row r of",
           plain_, [](AttentionLaunch& l) {
             l.v = [right = l.v](Index h, Index j, Index c) { return right(h, j ^ 1, c); };
           });
    launch("rows of V permuted in groups of 8", {"permuted_rows"}, "0 2 4 6 1 3 5 7", plain_,
           [](AttentionLaunch& l) {
             l.v = [right = l.v](Index h, Index j, Index c) {
               const Index in = j % 8;
               return right(h, j - in + (in < 4 ? 2 * in : 2 * in - 7), c);
             };
           });
    launch("Q read as [m, heads]", {"layout"}, "Q read as [rows, heads]", plain_,
           [](AttentionLaunch& l) {
             l.q = [&l](Index h, Index i, Index c) {
               return l.p.q[AttentionLaunch::at(i * l.p.heads + h, l.p.d, c)];
             };
           });
    launch("V read as transposed", {"layout"}, "V read as transposed", plain_,
           [](AttentionLaunch& l) {
             l.v = [&l](Index h, Index j, Index c) {
               return l.p.v[static_cast<std::size_t>(l.kv(h) * l.p.n * l.p.d_v + c * l.p.n + j)];
             };
           });
    launch("the tail of KV in the row sum", {"tail_counted"}, "32 columns", plain_,
           [](AttentionLaunch& l) {
             l.columns = 192;
             l.sees = [](Index, Index, Index) { return true; };
           });
    launch("the last, partial tile left out", {"tail_lost", "tile_skipped", "columns_unread"}, "",
           plain_, [](AttentionLaunch& l) { l.columns = 128; });
    launch("the last 32 terms of Q K^T left out", {"qk_terms"}, "32 to 63", plain_,
           [](AttentionLaunch& l) {
             l.q = [right = l.q](Index h, Index i, Index c) {
               return c < 32 ? right(h, i, c) : std::uint8_t{0};
             };
           });
  }

  void outputs() {
    constexpr std::size_t kWidth = 64;
    overwrite("the last rows of each block never written", {"never_written"}, "are 0", plain_,
              [](std::vector<float>& o) {
                for (std::size_t i = 0; i < o.size(); ++i)
                  if (i / kWidth % 32 >= 24) o[i] = 0.0F;
              });
    overwrite("negated", {"negated"}, "negated", plain_, [](std::vector<float>& o) {
      for (float& x : o) x = -x;
    });
    overwrite("P's factor not removed", {"output_factor"}, "2^8", plain_,
              [](std::vector<float>& o) {
                for (float& x : o) x *= 256.0F;
              });
    overwrite("rows one too low", {"rows_shifted"}, "row i holds row", plain_,
              [](std::vector<float>& o) { std::rotate(o.begin(), o.begin() + kWidth, o.end()); });
    overwrite("heads exchanged", {"heads_exchanged"}, "head 1 holds head 3", plain_,
              [](std::vector<float>& o) {
                std::swap_ranges(o.begin() + 96 * 64, o.begin() + 2 * 96 * 64,
                                 o.begin() + 3 * 96 * 64);
              });
    overwrite("O as [m, heads, d_v]", {"layout"}, "[m, heads, d_v]", plain_,
              [](std::vector<float>& o) {
                const std::vector<float> right = o;
                for (std::size_t h = 0; h < 4; ++h)
                  for (std::size_t i = 0; i < 96; ++i)
                    for (std::size_t c = 0; c < kWidth; ++c)
                      o[(i * 4 + h) * kWidth + c] = right[(h * 96 + i) * kWidth + c];
              });
    overwrite("halves of the columns exchanged", {"columns_permuted"}, "xor 32", plain_,
              [](std::vector<float>& o) {
                for (std::size_t row = 0; row < o.size(); row += kWidth)
                  for (std::size_t c = 0; c < 32; ++c) std::swap(o[row + c], o[row + c + 32]);
              });
    overwrite(
        "one row holds another", {"rows_permuted", "rows_shifted"}, "holds row", plain_,
        [](std::vector<float>& o) { std::copy_n(o.begin() + 40 * 64, 64, o.begin() + 17 * 64); });
    overwrite("O through BF16", {"output_cast"}, "rounded to bf16 first", plain_,
              [](std::vector<float>& o) {
                for (float& x : o)
                  x = static_cast<float>(round_trip(format(FormatId::bf16), kNvidiaNosat, x));
              });
    faults_.all.back().seen_in_bf16 = false;
    overwrite("a column of NaN", {"not_finite"}, "column 5 of every row of every head", plain_,
              [](std::vector<float>& o) {
                for (std::size_t i = 5; i < o.size(); i += kWidth)
                  o[i] = std::numeric_limits<float>::quiet_NaN();
              });
  }

  const AttentionProblem plain_ = test::make_problem(1, 2.0, [](AttentionProblem&) {});
  const AttentionProblem causal_ =
      test::make_problem(2, 2.0, [](AttentionProblem& p) { p.options.causal = true; });
  const AttentionProblem windowed_ = test::make_problem(3, 2.0, [](AttentionProblem& p) {
    p.options.causal = true;
    p.options.window_left = 24;
  });
  const AttentionProblem long_ = test::make_problem(4, 2.0, [](AttentionProblem& p) {
    p.m = 32;
    p.n = 1280;
  });
  test::AttentionFaults faults_;
};

std::int64_t named_right(const test::CampaignCheck& check) {
  Campaign campaign;
  return test::run_campaign(campaign.faults(), check);
}

TEST_CASE("attention check: a right kernel in slow motion has the library's bits", "[attention]") {
  for (const bool causal : {false, true}) {
    const AttentionProblem p =
        test::make_problem(5, 2.0, [&](AttentionProblem& x) { x.options.causal = causal; });
    CHECK(AttentionLaunch(p).run() == attention(p.inputs(), p.options).o);
  }
}

TEST_CASE("attention check: faults of a kernel are caught and named", "[attention][long]") {
  CHECK(named_right({.title = "attention, FP32 output"}) >= 64);
  CHECK(named_right({.title = "attention, BF16 output", .output = FormatId::bf16}) >= 62);
}

TEST_CASE("attention check: faults are named beside the noise of another exponential",
          "[attention][long]") {
  CHECK(named_right({.title = "attention, noise of 2e-4, tolerance 1e-3",
                     .noise = 2e-4,
                     .tolerance = 1e-3}) >= 61);
}

}  // namespace
}  // namespace fp8lab::attention_campaign_test
