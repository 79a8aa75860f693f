// Broken attention kernels in the shapes that are served (decode, grouped and latent keys, windows,
// paged and split keys), each checked: caught, and named?

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention/campaign.hpp"

namespace fp8lab::served_campaign_test {
namespace {

using test::AttentionLaunch;
using test::AttentionProblem;
using Index = std::int64_t;

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

class Campaign {
 public:
  std::vector<test::AttentionFault> faults() {
    scales();
    masks();
    tiles();
    pages();
    heads();
    softmax();
    exponentials();
    threads();
    memory();
    outputs();
    return std::move(f_.all);
  }

 private:
  void scales() {
    f_.launch(
        "K's scale of head h mod kv_heads", {"scale_in_turn", "wrong_scale"}, "", wide_,
        [](AttentionLaunch& l) { l.scale_k = [&l](Index h) { return l.p.scale_k[at(h % 3)]; }; });
    f_.launch(
        "V's scale of head h mod kv_heads", {"scale_in_turn", "output_factor"}, "", wide_,
        [](AttentionLaunch& l) { l.scale_v = [&l](Index h) { return l.p.scale_v[at(h % 3)]; }; });
    f_.launch(
        "Q's scale per head of K", {"scale_of_kv_head"}, "h / group", wide_,
        [](AttentionLaunch& l) { l.scale_q = [&l](Index h) { return l.p.scale_q[at(l.kv(h))]; }; });
    f_.launch("the scales of K and V exchanged", {"scale_of_operand"}, "exchanged", wide_,
              [](AttentionLaunch& l) { std::swap(l.scale_k, l.scale_v); });
    f_.launch("K's scale of one head twice", {"scale_twice", "wrong_scale"}, "", wide_,
              [](AttentionLaunch& l) {
                l.scale_k = [right = l.scale_k](Index h) {
                  return h == 2 || h == 3 ? right(h) * right(h) : right(h);
                };
              });
    f_.launch("scales rounded up to powers of two", {"scale_rounded"}, "powers of two", wide_,
              [](AttentionLaunch& l) {
                const auto up = [](float x) { return std::exp2(std::ceil(std::log2(x))); };
                l.scale_q = [up, right = l.scale_q](Index h) { return up(right(h)); };
                l.scale_k = [up, right = l.scale_k](Index h) { return up(right(h)); };
                l.scale_v = [up, right = l.scale_v](Index h) { return up(right(h)); };
              });
    f_.launch(
        "V's scale in BF16", {"scale_rounded"}, "bf16", decode_,
        [](AttentionLaunch& l) {
          l.scale_v = [right = l.scale_v](Index h) {
            return static_cast<float>(round_trip(format(FormatId::bf16), kNvidiaNosat, right(h)));
          };
        },
        false);
    f_.launch("the softmax's scale of a padded head", {"softmax_scale"}, "", mla_,
              [](AttentionLaunch& l) { l.softmax = 1.0 / 16.0; });
    f_.launch("the softmax's scale from d_v", {"softmax_scale"}, "d_v", mla_,
              [](AttentionLaunch& l) { l.softmax = 1.0 / std::sqrt(128.0); });
  }

  void masks() {
    const auto mask = [&](const std::string& what, std::vector<std::string> right,
                          const std::string& text, const AttentionProblem& p,
                          const std::function<bool(Index h, Index i, Index j)>& sees) {
      f_.launch(what, std::move(right), text, p, [sees](AttentionLaunch& l) { l.sees = sees; });
    };
    mask("rows of a block see what its first row sees", {"mask_of_tiles"}, "first row", mqa_,
         [](Index, Index i, Index j) { return j <= i / 64 * 64; });
    mask("the mask in the other direction", {"mask"}, "", mqa_,
         [](Index, Index i, Index j) { return j >= i; });
    mask("no mask in one head", {"no_mask"}, "head 2", mqa_,
         [](Index h, Index i, Index j) { return h == 2 || j <= i; });
    mask("the tile at the mask's edge left out", {"mask_of_tiles"}, "left out", mqa_,
         [](Index, Index i, Index j) { return j < (i + 1) / 32 * 32; });
    mask("rows counted over the group's heads", {"mask_of_packed_rows"}, "", mqa_,
         [](Index h, Index i, Index j) { return j <= (i * 4 + h) % 128; });
    mask("a window one too narrow on the right", {"mask_off_by_one"}, "too few on the right",
         window_, [](Index, Index i, Index j) { return j <= i + 7 && j >= i - 40; });
    mask("a window one too narrow on the left", {"mask_off_by_one"}, "too few on the left", window_,
         [](Index, Index i, Index j) { return j <= i + 8 && j >= i - 39; });
    mask("a window without its right side", {"no_window", "mask"}, "right", window_,
         [](Index, Index i, Index j) { return j >= i - 40; });
    mask("a causal window", {"mask"}, "", window_,
         [](Index, Index i, Index j) { return j <= i && j >= i - 40; });
    f_.launch("hidden scores are 0", {"mask_value"}, "0", mqa_,
              [](AttentionLaunch& l) { l.hidden = 0.0F; });
    f_.launch("the maximum of hidden columns too", {"maximum_of_hidden"}, "", mqa_,
              [](AttentionLaunch& l) { l.hides_first = false; });
    mask("a length shorter by one page", {"columns_unread", "tail_lost"}, "", decode_,
         [](Index, Index, Index j) { return j < 624; });
    mask("the newest key is not seen", {"columns_unread", "mask_off_by_one", "mask"}, "", decode_,
         [](Index, Index, Index j) { return j < 639; });
    mask("the first keys are not seen", {"columns_unread"}, "before 16", decode_,
         [](Index, Index, Index j) { return j >= 16; });
  }

  /// Parts of the columns, each a launch of its own, with what `merge` makes of them.
  void splits(const std::string& what, std::vector<std::string> right, const std::string& text,
              const AttentionProblem& p, const std::vector<Index>& ends,
              const std::function<double(double weight, std::size_t part)>& weight) {
    f_.all.push_back({what, std::move(right), text, &p, [&p, ends, weight] {
                        std::vector<double> o(at(p.heads * p.m * p.d_v), 0.0);
                        std::vector<double> sums(at(p.heads * p.m), 0.0);
                        for (std::size_t part = 0; part + 1 < ends.size(); ++part) {
                          AttentionLaunch l(p);
                          l.sees = [&, right_mask = l.sees](Index h, Index i, Index j) {
                            return j >= ends[part] && j < ends[part + 1] && right_mask(h, i, j);
                          };
                          std::vector<double> lse;
                          l.lse = &lse;
                          const std::vector<float> own = l.run();
                          for (std::size_t row = 0; row < sums.size(); ++row) {
                            const double w = weight(lse[row], part);
                            sums[row] += w;
                            for (std::size_t c = 0; c < at(p.d_v); ++c)
                              o[row * at(p.d_v) + c] +=
                                  w * static_cast<double>(own[row * at(p.d_v) + c]);
                          }
                        }
                        std::vector<float> out;
                        for (std::size_t i = 0; i < o.size(); ++i)
                          out.push_back(static_cast<float>(o[i] / sums[i / at(p.d_v)]));
                        return out;
                      }});
  }

  void tiles() {
    f_.launch("every other tile left out", {"tile_skipped", "tiles_skipped"}, "", decode_,
              [](AttentionLaunch& l) {
                l.tiles = [](Index, Index) { return std::vector<Index>{4, 2, 0}; };
              });
    f_.launch("the middle tile three times", {"tile_twice"}, "columns 256 to 383 count 3", decode_,
              [](AttentionLaunch& l) {
                l.tiles = [](Index, Index) { return std::vector<Index>{4, 3, 2, 2, 2, 1, 0}; };
              });
    f_.launch("K of the stage before", {"stale_tile", "wrong_page"}, "K", decode_,
              [](AttentionLaunch& l) {
                l.k = [right = l.k](Index h, Index j, Index c) {
                  return right(h, j >= 128 && j < 256 ? j + 256 : j, c);
                };
              });
    f_.launch("K and V of another tile", {"stale_tile", "wrong_page"}, "K and V", decode_,
              [](AttentionLaunch& l) {
                const auto from = [](Index j) { return j >= 256 && j < 384 ? j - 128 : j; };
                l.k = [=, right = l.k](Index h, Index j, Index c) { return right(h, from(j), c); };
                l.v = [=, right = l.v](Index h, Index j, Index c) { return right(h, from(j), c); };
              });
    f_.launch("the last 16 rows of each tile of V are zeros", {"rows_of_zeros"}, "16", decode_,
              [](AttentionLaunch& l) {
                l.v = [right = l.v](Index h, Index j, Index c) {
                  return j % 128 < 112 ? right(h, j, c) : std::uint8_t{0};
                };
              });
    f_.launch("the last 32 rows of each tile of K are zeros", {"rows_of_zeros"}, "32", wide_,
              [](AttentionLaunch& l) {
                l.k = [right = l.k](Index h, Index j, Index c) {
                  return j % 128 < 96 ? right(h, j, c) : std::uint8_t{0};
                };
              });
    splits("parts averaged", {"split_average"}, "4 parts", decode_, {0, 160, 320, 480, 640},
           [](double, std::size_t) { return 1.0; });
    splits("parts weighted by exp2 of their natural logarithm", {"split_merge"}, "", decode_,
           {0, 320, 640}, [](double lse, std::size_t) { return std::exp2(lse); });
    splits("parts weighted by their row sums without maxima", {"split_merge", "columns_unread"}, "",
           decode_, {0, 256, 512, 640},
           [](double lse, std::size_t) { return std::exp(lse * std::log2(std::exp(1.0))); });
    splits("one part of the keys alone", {"columns_unread", "part_alone"}, "", decode_,
           {0, 256, 512, 640}, [](double, std::size_t part) { return part == 1 ? 1.0 : 0.0; });
    splits("one part left out of the merge", {"part_lost", "columns_unread"}, "", decode_,
           {0, 256, 512, 640},
           [](double lse, std::size_t part) { return part == 1 ? 0.0 : std::exp(lse); });
  }

  void pages() {
    const auto page = [&](const std::string& what, const std::string& text, bool k, bool v,
                          Index size, const std::function<Index(Index)>& from) {
      f_.launch(what, {"wrong_page"}, text, decode_, [=](AttentionLaunch& l) {
        const auto row = [=](Index j) { return from(j / size) * size + j % size; };
        if (k) l.k = [=, right = l.k](Index h, Index j, Index c) { return right(h, row(j), c); };
        if (v) l.v = [=, right = l.v](Index h, Index j, Index c) { return right(h, row(j), c); };
      });
    };
    page("a page of K and V twice", "", true, true, 64, [](Index b) { return b == 5 ? 2 : b; });
    page("V's pages one behind K's", "V", false, true, 64,
         [](Index b) { return b == 0 ? 0 : b - 1; });
    page("two pages of V exchanged", "V", false, true, 64, [](Index b) {
      return b == 3 ? 7 : b == 7 ? 3 : b;
    });
  }

  void heads() {
    const auto reads = [&](const std::string& what, const std::string& text,
                           const AttentionProblem& p, const std::function<Index(Index)>& from) {
      f_.launch(what, {"head_mapping"}, text, p, [=](AttentionLaunch& l) {
        l.k = [&l, from](Index h, Index j, Index c) { return l.k_of(from(h), j, c); };
        l.scale_k = [&l, from](Index h) { return l.p.scale_k[at(from(h))]; };
        l.v = [&l, from](Index h, Index j, Index c) { return l.v_of(from(h), j, c); };
        l.scale_v = [&l, from](Index h) { return l.p.scale_v[at(from(h))]; };
      });
    };
    reads("head h reads KV head h / kv_heads", "", wide_, [](Index h) { return h / 3; });
    reads("one head reads the next KV head", "", wide_, [](Index h) { return h == 3 ? 2 : h / 2; });
    reads("decode heads on KV head h mod kv_heads", "mod kv_heads", decode_,
          [](Index h) { return h % 2; });
    f_.launch("K's head for V's place in one KV head", {"operands_exchanged"}, "K in", wide_,
              [](AttentionLaunch& l) {
                l.v = [&l](Index h, Index j, Index c) { return l.k_of(l.kv(h), j, c); };
              });
  }

  void softmax() {
    f_.launch("a soft cap of 3", {"soft_cap"}, "3", wide_, [](AttentionLaunch& l) {
      l.score = [&l](Index h, Index, Index, float s) {
        const auto scale = static_cast<float>(l.softmax) * l.scale_q(h) * l.scale_k(h);
        return 3.0F * std::tanh(s * scale / 3.0F) / scale;
      };
    });
    f_.launch("a bias of ALiBi", {"position_bias"}, "", mqa_, [](AttentionLaunch& l) {
      l.score = [&l](Index h, Index i, Index j, float s) {
        const auto scale = static_cast<float>(l.softmax) * l.scale_q(h) * l.scale_k(h);
        const double slope = std::exp2(-2.0 * static_cast<double>(h + 1));
        return s + static_cast<float>(slope * static_cast<double>(j - i)) / scale;
      };
    });
    f_.launch(
        "a sink of 0", {"sink", "tail_counted"}, "", wide_,
        [](AttentionLaunch& l) { l.sink = 0.0F; }, false);
    f_.launch("the maximum is that of the tile", {"maximum_of_tile"}, "", wide_,
              [](AttentionLaunch& l) { l.follows_tile = true; });
    f_.launch("S in FP16", {"s_format"}, "f16", wide_, [](AttentionLaunch& l) {
      l.score = [](Index, Index, Index, float s) {
        return static_cast<float>(round_trip(format(FormatId::f16), kNvidiaNosat, s));
      };
    });
    f_.launch("an offset of 9", {"p_offset"}, "2^9", wide_,
              [](AttentionLaunch& l) { l.offset = 9.0F; });
    f_.launch(
        "an offset of 7", {"p_offset"}, "2^7", unit_, [](AttentionLaunch& l) { l.offset = 7.0F; },
        false);
    f_.all.back().seen_in_bf16 = false;
    f_.launch(
        "no promotion", {"no_promotion"}, "", unit_, [](AttentionLaunch& l) { l.promotes = false; },
        false);
    f_.launch("a softmax scale that is squared", {"softmax_scale"}, "twice", unit_,
              [](AttentionLaunch& l) { l.softmax *= l.softmax; });
    f_.launch("O divided by the sum twice", {"two_divisions"}, "", unit_, [](AttentionLaunch& l) {
      l.finish = [](float o, float sum, float scale) { return o / sum / sum * scale; };
    });
    f_.launch("the row sum after the cast", {"sum_after_cast"}, "", unit_,
              [](AttentionLaunch& l) { l.summed = [](float, float cast) { return cast; }; });
  }

  void exponentials() {
    f_.launch("exp2 as a straight line between powers", {"exp2"}, "straight", wide_,
              [](AttentionLaunch& l) {
                l.exp2 = [](float x) {
                  if (x < -120.0F) return 0.0F;
                  const float whole = std::floor(x);
                  return std::ldexp(1.0F + (x - whole), static_cast<int>(whole));
                };
              });
    f_.launch("exp2 in BF16", {"exp2"}, "bf16", wide_, [](AttentionLaunch& l) {
      l.exp2 = [](float x) {
        return static_cast<float>(round_trip(format(FormatId::bf16), kNvidiaNosat, std::exp2(x)));
      };
    });
  }

  void threads() {
    f_.launch(
        "the row sum of one thread of four", {"sum_of_thread"}, "", wide_, [](AttentionLaunch& l) {
          l.total = [](const AttentionLaunch::Partial& sum, Index c) { return sum[at(c / 2 % 4)]; };
        });
    f_.launch("the row sum of the row 8 below", {"sum_of_other_row"}, "", wide_,
              [](AttentionLaunch& l) { l.sum_of = [](Index row) { return row ^ 8; }; });
    f_.launch("the alpha of the row 8 below", {"alpha_of_other_row"}, "", wide_,
              [](AttentionLaunch& l) { l.alpha_of = [](Index row) { return row ^ 8; }; });
    f_.launch("O of the block before is not cleared", {"o_not_cleared"}, "", unit_,
              [](AttentionLaunch& l) { l.clears_o = false; });
    f_.launch("the row sum of the block before is not cleared", {"sum_not_cleared"}, "", unit_,
              [](AttentionLaunch& l) { l.clears_sum = false; });
  }

  void memory() {
    const auto columns_of_k = [&](const std::string& what, const std::string& text,
                                  const AttentionProblem& p,
                                  const std::function<Index(Index j, Index c)>& from) {
      f_.launch(what, {"permuted_columns"}, text, p, [=](AttentionLaunch& l) {
        l.k = [=, right = l.k](Index h, Index j, Index c) { return right(h, j, from(j, c)); };
      });
    };
    columns_of_k("halves of K's columns interleaved", "", wide_,
                 [](Index, Index c) { return c % 2 * 64 + c / 2; });
    columns_of_k("chunks of 16 bytes of K not unswizzled", "", wide_,
                 [](Index j, Index c) { return c ^ (j % 8 * 16); });
    columns_of_k("halves of K's columns exchanged", "", wide_,
                 [](Index, Index c) { return c ^ 64; });
    f_.launch("chunks of 16 bytes of V not unswizzled", {"permuted_columns"}, "V", wide_,
              [](AttentionLaunch& l) {
                l.v = [right = l.v](Index h, Index j, Index c) {
                  return right(h, j, c ^ (j % 8 * 16));
                };
              });
    f_.launch("V's rows in the order of 8-bit fragments", {"permuted_rows"}, "32", wide_,
              [](AttentionLaunch& l) {
                l.v = [right = l.v](Index h, Index j, Index c) {
                  const Index in = j % 32;  // bits 4 3 2 1 0 -> 2 1 4 3 0
                  const Index to = ((in >> 3) & 3) << 1 | ((in >> 1) & 3) << 3 | (in & 1);
                  const Index row = j - in + to;
                  return right(h, row < l_n ? row : j, c);
                };
              });
    f_.launch("K's rows one too low", {"permuted_rows"}, "K", decode_, [](AttentionLaunch& l) {
      l.k = [&l, right = l.k](Index h, Index j, Index c) {
        return right(h, std::min(j + 1, l.p.n - 1), c);
      };
    });
    f_.launch("the part with positions left out", {"qk_terms"}, "128 to 191", mla_,
              [](AttentionLaunch& l) {
                l.q = [right = l.q](Index h, Index i, Index c) {
                  return c < 128 ? right(h, i, c) : std::uint8_t{0};
                };
              });
    f_.launch("the last 16 terms of Q K^T left out", {"qk_terms"}, "176 to 191", mla_,
              [](AttentionLaunch& l) {
                l.q = [right = l.q](Index h, Index i, Index c) {
                  return c < 176 ? right(h, i, c) : std::uint8_t{0};
                };
              });
    f_.launch("V as [n, kv_heads, d_v]", {"layout"}, "V read as [rows, heads]", wide_,
              [](AttentionLaunch& l) {
                l.v = [&l](Index h, Index j, Index c) {
                  return l.p.v[at((j * l.p.kv_heads + l.kv(h)) * l.p.d_v + c)];
                };
              });
    f_.launch("K's codes read as E5M2", {"operand_format"}, "K read as", unit_,
              [](AttentionLaunch& l) { l.k_format = FormatId::e5m2; });
  }

  void outputs() {
    f_.overwrite("columns from 64 on never written", {"never_written"}, "", wide_,
                 [](std::vector<float>& o) {
                   for (std::size_t i = 0; i < o.size(); ++i)
                     if (i % 128 >= 64) o[i] = 0.0F;
                 });
    f_.overwrite("O added to itself", {"output_factor"}, "2^1", decode_, [](std::vector<float>& o) {
      for (float& x : o) x *= 2.0F;
    });
    f_.overwrite("blocks of rows exchanged", {"rows_permuted", "rows_shifted"}, "", mqa_,
                 [](std::vector<float>& o) {
                   for (std::size_t h = 0; h < 4; ++h)
                     std::swap_ranges(
                         o.begin() + static_cast<std::ptrdiff_t>(h * 128 * 64),
                         o.begin() + static_cast<std::ptrdiff_t>(h * 128 * 64 + 64 * 64),
                         o.begin() + static_cast<std::ptrdiff_t>(h * 128 * 64 + 64 * 64));
                 });
    f_.overwrite("NaN in the first rows of a window", {"not_finite"}, "", window_,
                 [](std::vector<float>& o) {
                   for (std::size_t i = 0; i < 8; ++i)
                     o[i] = std::numeric_limits<float>::quiet_NaN();
                 });
    f_.overwrite("one head's outputs halved", {"output_factor"}, "", decode_,
                 [](std::vector<float>& o) {
                   for (std::size_t i = 3 * 128; i < 4 * 128; ++i) o[i] *= 0.5F;
                 });
  }

  static constexpr Index l_n = 272;
  const AttentionProblem wide_ = test::make_problem(11, 1.5, [](AttentionProblem& p) {
    p.heads = 6;
    p.kv_heads = 3;
    p.m = 80;
    p.n = l_n;
    p.d = p.d_v = 128;
    p.options.q_tile = 64;
    p.options.kv_tile = 128;
    p.options.row_sum = RowSum::quads;
  });
  const AttentionProblem mqa_ = test::make_problem(12, 2.0, [](AttentionProblem& p) {
    p.kv_heads = 1;
    p.m = p.n = 128;
    p.options.q_tile = 64;
    p.options.kv_tile = 32;
    p.options.causal = true;
    p.options.tile_order = TileOrder::first_to_last;
  });
  const AttentionProblem decode_ = test::make_problem(13, 1.5, [](AttentionProblem& p) {
    p.heads = 8;
    p.m = 1;
    p.n = 640;
    p.d = p.d_v = 128;
    p.scale_step = 0.25;
    p.options.q_tile = 64;
    p.options.kv_tile = 128;
    p.options.causal = true;
  });
  const AttentionProblem mla_ = test::make_problem(14, 1.5, [](AttentionProblem& p) {
    p.kv_heads = 1;
    p.m = 4;
    p.n = 256;
    p.d = 192;
    p.d_v = 128;
  });
  const AttentionProblem window_ = test::make_problem(15, 2.0, [](AttentionProblem& p) {
    p.heads = 2;
    p.kv_heads = 1;
    p.m = p.n = 128;
    p.options.window_left = 40;
    p.options.window_right = 8;
  });
  const AttentionProblem unit_ = test::make_problem(16, 1.0, [](AttentionProblem& p) {
    p.heads = p.kv_heads = 2;
    p.m = 64;
    p.n = 192;
    p.scale_step = 0.0;
    p.options.softmax_scale = 1.0F / 2048.0F;
    p.options.two_level = true;
  });
  test::AttentionFaults f_;
};

std::int64_t named_right(const test::CampaignCheck& check) {
  Campaign campaign;
  return test::run_campaign(campaign.faults(), check);
}

TEST_CASE("attention: merged parts are those of separate launches", "[attention]") {
  const AttentionProblem p = test::make_problem(17, 1.5, [](AttentionProblem& x) { x.n = 352; });
  AttentionOptions options = p.options;
  options.splits = 4;  // six tiles: 2, 2, 2 and none
  const std::vector<float> merged = attention(p.inputs(), options).o;
  std::vector<double> sum(merged.size(), 0.0);
  std::vector<double> total(merged.size() / 64, 0.0);
  for (const Index first : {0, 2, 4}) {
    AttentionLaunch l(p);
    std::vector<double> lse;
    l.lse = &lse;
    l.tiles = [=](Index, Index) { return std::vector<Index>{first + 1, first}; };
    const std::vector<float> o = l.run();
    for (std::size_t i = 0; i < o.size(); ++i)
      sum[i] += std::exp(lse[i / 64]) * static_cast<double>(o[i]);
    for (std::size_t row = 0; row < lse.size(); ++row) total[row] += std::exp(lse[row]);
  }
  double apart = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double o = sum[i] / total[i / 64];
    apart += (o - static_cast<double>(merged[i])) * (o - static_cast<double>(merged[i]));
    norm += o * o;
  }
  CHECK(std::sqrt(apart / norm) < 1e-6);
  CHECK(merged != attention(p.inputs(), p.options).o);
}

TEST_CASE("attention: soft caps and sinks are within the error of P of exact ones", "[attention]") {
  const AttentionProblem p = test::make_problem(18, 3.0, [](AttentionProblem&) {});
  const AttentionInputs in = p.inputs();
  const std::vector<float> q = dequantize(in.q);
  const std::vector<float> k = dequantize(in.k);
  const std::vector<float> v = dequantize(in.v);
  AttentionOptions capped = p.options;
  capped.soft_cap = 2.5F;
  AttentionOptions sunk = p.options;
  sunk.sinks = {4.0F, 6.0F, 8.0F, -2.0F};
  for (const AttentionOptions& options : {capped, sunk}) {
    const std::vector<float> o = attention(in, options).o;
    double apart = 0.0;
    double norm = 0.0;
    for (Index row = 0; row < p.heads * p.m; ++row) {
      const Index head = row / p.m;
      std::vector<double> own(at(p.d_v), 0.0);
      double sum = options.sinks.empty() ? 0.0 : std::exp(double{options.sinks[at(head)]});
      for (Index j = 0; j < p.n; ++j) {
        const float* of_k = k.data() + (head / 2 * p.n + j) * p.d;
        double s = 0.0;
        for (Index c = 0; c < p.d; ++c)
          s += static_cast<double>(q[at(row * p.d + c)]) * static_cast<double>(of_k[c]) / 8.0;
        if (options.soft_cap > 0.0F) s = 2.5 * std::tanh(s / 2.5);
        sum += std::exp(s);
        for (Index c = 0; c < p.d_v; ++c)
          own[at(c)] += std::exp(s) * static_cast<double>(v[at((head / 2 * p.n + j) * p.d_v + c)]);
      }
      for (Index c = 0; c < p.d_v; ++c) {
        const double x = own[at(c)] / sum;
        const double y = static_cast<double>(o[at(row * p.d_v + c)]);
        apart += (x - y) * (x - y);
        norm += x * x;
      }
    }
    INFO("soft cap " << options.soft_cap);
    CHECK(std::sqrt(apart / norm) < 0.03);
    // Another cap and other sinks are not within it.
    AttentionOptions other = options;
    if (other.soft_cap > 0.0F) other.soft_cap = 3.5F;
    for (float& sink : other.sinks) sink += 1.0F;
    CHECK(verify_attention(in, options, attention(in, other).o, FormatId::f32).distance > 0.03);
  }
}

TEST_CASE("attention check: faults of served kernels are caught and named", "[attention][long]") {
  CHECK(named_right({.title = "served attention, FP32 output"}) >= 70);
  CHECK(named_right({.title = "served attention, BF16 output", .output = FormatId::bf16}) >= 69);
}

TEST_CASE("attention check: faults of served kernels are named beside noise", "[attention][long]") {
  CHECK(named_right({.title = "served attention, noise of 2e-4, tolerance 1e-3",
                     .noise = 2e-4,
                     .tolerance = 1e-3}) >= 67);
}

}  // namespace
}  // namespace fp8lab::served_campaign_test
