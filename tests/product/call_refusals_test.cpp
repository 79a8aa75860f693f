// What a library's calls, and tables of observed ones, refuse, word for word.

#include <fmt/format.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/product/calls.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "message_of.hpp"
#include "product/ones.hpp"

using namespace fp8lab;

namespace {

const std::string kTableOfCalls =
    "# fp8lab cublaslt 2\n# model: sm90.wgmma.e4m3\n"
    "m,n,k,a,b,output,accumulation,outputs,fitting,interval,parts,tile,cut,order,scale_order,"
    "rounding\n"
    "3,4,512,e4m3fn,e5m2,f32,slow,12,2,128,2,128,contiguous,serial,b_then_fma_a,once\n"
    "3,4,512,e4m3fn,e5m2,f32,slow,12,2,0,4,64,modulo,tree,b_then_fma_a,once\n";

}  // namespace

TEST_CASE("calls with tiles of scales are refused without them", "[product]") {
  int tiled = 0;
  for (const LibraryCall& call : library_calls()) {
    const bool needs = call.scales.find("1x") != std::string_view::npos;
    tiled += needs ? 1 : 0;
    const auto message = [&](bool of_a, bool of_b) {
      return test::message_of([&] { require_scales(call, of_a, of_b); });
    };
    const auto refused = [&](const char* name) {
      return fmt::format("`{}`: expected scales of {}, as {} has, got none", name, call.scales,
                         call.name);
    };
    CHECK(message(true, true) == "accepted");
    CHECK(message(false, true) == (needs ? refused("scale_a") : "accepted"));
    CHECK(message(true, false) == (needs ? refused("scale_b") : "accepted"));
  }
  CHECK(tiled == 10);
}

TEST_CASE("a call in a table: what is refused, word for word", "[product]") {
  const auto parsed = [](const char* text, const std::string& expected) {
    CHECK(test::message_of([&] { (void)parse_table_call(text); }) == expected);
  };
  parsed("t.csv", "call: expected FILE.csv:fast or FILE.csv:slow, then ,FIELD=VALUE, got t.csv");
  parsed("t.csv:", "call: expected FILE.csv:fast or FILE.csv:slow, then ,FIELD=VALUE, got t.csv:");
  parsed("t.csv:quick",
         "call: expected FILE.csv:fast or FILE.csv:slow, then ,FIELD=VALUE, got t.csv:quick");
  parsed("t.csv:fast,order",
         "call: expected FILE.csv:fast or FILE.csv:slow, then ,FIELD=VALUE, got order");
  parsed("t.csv:fast,F=1",
         "call: expected a field of output, interval, parts, tile, cut, order, scale_order, "
         "rounding, got F");
  parsed("t.csv:fast,order=tree,order=serial", "call: expected each field once, got order");
  parsed(
      "t.csv:fast,output=fp7",
      "format: expected one of e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, e8m0fnu, e2m1, e2m3, e3m2, "
      "f16, bf16, tf32, e8m13, f32, e3m4, e4m3_ieee, e4m3b11fnuz, ue4m3, ue5m3, binaryKpP of IEEE "
      "P3109 (binary8p3se), or float:e=BITS,m=BITS,..., got 'fp7'");
  parsed("t.csv:slow,output=f32,output=f16",
         "call: expected output once, got t.csv:slow,output=f32,output=f16");
  const CallTable table = parse_call_table(kTableOfCalls, "t.csv");
  const auto call = [&](const char* text,
                        const std::function<void(GemmOperands&, GemmSpec&)>& change,
                        const std::string& expected) {
    GemmOperands operands;
    operands.a.codes = test::codes({3, 512});
    operands.b.codes = test::codes({4, 512}, ElementType::e5m2);
    GemmSpec spec{.model = "sm90.wgmma.e4m3"};
    change(operands, spec);
    CHECK(test::message_of(
              [&] { (void)with_call(table, parse_table_call(text), operands, spec); }) == expected);
  };
  const auto same = [](GemmOperands&, GemmSpec&) {};
  call("t.csv:slow", same,
       "t.csv: 3x4x512 of e4m3fn and e5m2 to f32, slow: expected a choice of what the observation "
       "leaves open (interval=128|0, parts=2|4, tile=128|64, cut=contiguous|modulo, "
       "order=serial|tree), behind the call as ,FIELD=VALUE, got 2 candidates");
  call("t.csv:slow,order=tree", same, "accepted");
  call("t.csv:fast", same,
       "call: expected a call in t.csv, got 3x4x512 of e4m3fn and e5m2 to f32, fast");
  call("t.csv:slow,interval=128,parts=4", same,
       "t.csv: 3x4x512 of e4m3fn and e5m2 to f32, slow: parts: expected 2, as observed, got 4");
  call("t.csv:slow,scale_order=x", same,
       "t.csv: 3x4x512 of e4m3fn and e5m2 to f32, slow: scale_order: expected b_then_fma_a, as "
       "observed, got x");
  call("t.csv:slow,output=f16", same,
       "call: expected output=f32, as the product's, got t.csv:slow,output=f16");
  call(
      "t.csv:slow,order=tree", [](GemmOperands& o, GemmSpec&) { o.a.scales = test::real({3}); },
      "`scale_a`: expected one scale, as the calls of the table had, got 3");
  call(
      "t.csv:slow,order=tree",
      [](GemmOperands& o, GemmSpec&) {
        o.b.scales = test::real({4, 1});
      },
      "`scale_b`: expected one scale, as the calls of the table had, got 4");
  call(
      "t.csv:slow,order=tree", [](GemmOperands& o, GemmSpec&) { o.recipe = "torchao-rowwise"; },
      "recipe: expected one with a scale for a whole tensor, as the calls of the table had, got "
      "torchao-rowwise");
  call(
      "t.csv:slow,order=tree", [](GemmOperands& o, GemmSpec&) { o.recipe = "deepseek-v3"; },
      "recipe: expected one with a scale for a whole tensor, as the calls of the table had, got "
      "deepseek-v3");
  call(
      "t.csv:slow,order=tree", [](GemmOperands& o, GemmSpec&) { o.recipe = "te-current"; },
      "call: expected a call in t.csv, got 3x4x512 of e4m3fn and e4m3fn to f32, slow");
  call(
      "t.csv:slow,order=tree",
      [](GemmOperands& o, GemmSpec&) {
        o.a.codes = test::real({3, 512});
      },
      "A: expected e4m3fn or e5m2 with a table, got f32");
  call(
      "t.csv:slow,order=tree",
      [](GemmOperands& o, GemmSpec&) {
        o.b.codes = test::codes({4, 512}, ElementType::e4m3fnuz);
      },
      "B: expected e4m3fn or e5m2 with a table, got e4m3fnuz");
  call(
      "t.csv:slow,order=tree",
      [](GemmOperands& o, GemmSpec&) {
        o.b.codes = test::codes({4, 512});
      },
      "call: expected a call in t.csv, got 3x4x512 of e4m3fn and e4m3fn to f32, slow");
  call(
      "t.csv:slow,order=tree",
      [](GemmOperands& o, GemmSpec&) {
        o.a.codes = test::codes({5, 512});
      },
      "call: expected a call in t.csv, got 5x4x512 of e4m3fn and e5m2 to f32, slow");
  call(
      "t.csv:slow,order=tree",
      [](GemmOperands& o, GemmSpec&) {
        o.b.codes = test::codes({4, 512, 1}, ElementType::e5m2);
      },
      "B: expected a matrix [n, k], got e5m2 [4, 512, 1]");
  call(
      "t.csv:slow,order=tree", [](GemmOperands& o, GemmSpec&) { o.a.codes = test::codes({512}); },
      "A: expected a matrix [m, k], got e4m3fn [512]");
  call(
      "t.csv:slow,order=tree", [](GemmOperands&, GemmSpec& s) { s.split.parts = 3; },
      "`split_k`: expected none with a table, which sets it, got 3");
  call(
      "t.csv:slow,order=tree", [](GemmOperands&, GemmSpec& s) { s.output.format = FormatId::bf16; },
      "call: expected a call in t.csv, got 3x4x512 of e4m3fn and e5m2 to bf16, slow");
}

TEST_CASE("a spec names a model or a call, and a call's own settings only once", "[product]") {
  GemmOperands operands;
  operands.a.codes = test::codes({3, 256});
  operands.b.codes = test::codes({4, 256});
  const auto said = [&](const GemmSpec& spec) {
    return test::message_of([&] { (void)make_product(operands, spec); });
  };
  const auto set = [](std::string_view name, std::string_view got) {
    return fmt::format("`{}`: expected none with call 'cublaslt.h100.slow', which sets it, got {}",
                       name, got);
  };
  const std::string call = "cublaslt.h100.slow";
  CHECK(said({}) ==
        "`model`: expected an instruction, or the name of a library call (`call`), got neither");
  CHECK(said({.model = "fp32", .call = call}) == set("model", "fp32"));
  CHECK(said({.call = call, .promotion_interval = 64}) == set("promotion", "64"));
  CHECK(said({.call = call, .scale_order = ScaleOrder::product_then_add}) ==
        set("scale_order", "product_then_add"));
  const Product by_call = make_product(operands, {.call = call});
  CHECK(by_call.model == "sm90.wgmma.e4m3");
  CHECK(by_call.problem.promotion_interval == 128);
}

TEST_CASE("operands that are parts of larger matrices are read in place", "[product]") {
  std::vector<std::byte> matrix(9 * 512);
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<std::byte>(i * 37 % 113);
  const std::span<const std::byte> whole(matrix);
  GemmOperands dense;
  dense.a.codes = test::codes({3, 256});
  dense.b.codes = test::codes({4, 256});
  GemmOperands parts = dense;
  // Every third row from the sixth upwards, and every second term.
  parts.a.codes = {ElementType::e4m3fn, {3, 256}, whole.subspan(6 * 512), false};
  parts.a.strides = {-3 * 512, 2};
  std::vector<std::byte> copied;
  for (const std::size_t row : {6U, 3U, 0U})
    for (std::size_t k = 0; k < 256; ++k) copied.push_back(whole[row * 512 + 2 * k]);
  dense.a.codes.bytes = copied;
  const GemmSpec spec{.model = "sm90.wgmma.e4m3"};
  CHECK(compute(make_product(parts, spec)) == compute(make_product(dense, spec)));
  CHECK(test::message_of([&] {
          (void)make_grouped_product(parts, spec, {GroupKind::row_ends, {3}, 0});
        }) == "A: expected a dense tensor, with groups, got a part of a larger one");
}

TEST_CASE("library calls: the splits and formats of others are refused, word for word",
          "[product]") {
  const std::string number = fmt::format("call: expected one of {} names", library_calls().size());
  for (const auto& [name, meant] :
       {std::pair{"", " such as cublaslt.h100.fast, cublaslt.h100.slow, cublaslt.rtx4060.fast"},
        std::pair{"cublaslt",
                  " (did you mean cublaslt.h100.fast or cublaslt.h100.slow or "
                  "cublaslt.rtx4060.fast?)"},
        std::pair{"cublaslt.h100.fas", " (did you mean cublaslt.h100.fast?)"}})
    CHECK(test::message_of([&, given = name] { (void)find_library_call(given); }) ==
          fmt::format("{}{}, got '{}'", number, meant, name));
  for (const LibraryCall& one : library_calls()) {
    std::string known;
    for (const auto& [cut, order] : one.splits)
      known +=
          fmt::format("{}{} {}", known.empty() ? "" : " or ", to_string(cut), to_string(order));
    if (known.empty()) known = "K whole";
    const auto splitted = [&, &own = one](SplitCut cut, SplitOrder order, std::int64_t tile) {
      GemmOperands operands;
      operands.a.codes = test::codes({3, 512});
      operands.b.codes = test::codes({4, 512});
      operands.a.codes.type = operands.b.codes.type =
          element_type_of(find_instruction_model(own.model).a_format);
      GemmSpec spec{.model = "sm90.wgmma.e4m3"};
      spec.split = {.parts = 2, .tile = tile, .cut = cut, .order = order};
      std::int64_t got = 0;
      const std::string said =
          test::message_of([&] { got = with_call(own, operands, spec).split.tile; }, "");
      return said.empty() ? fmt::format("tile {}", got) : said;
    };
    for (const SplitOrder order : {SplitOrder::serial, SplitOrder::pairwise, SplitOrder::tree})
      for (const SplitCut cut : {SplitCut::contiguous, SplitCut::modulo}) {
        bool has = false;
        for (const auto& [own_cut, own_order] : one.splits)
          has = has || (own_cut == cut && own_order == order);
        const std::string refused =
            fmt::format("split_k: expected {}, the known splits of {}, got {} {}", known, one.name,
                        to_string(cut), to_string(order));
        CHECK(splitted(cut, order, 0) == (has ? fmt::format("tile {}", one.split_tile) : refused));
        CHECK(splitted(cut, order, 96) == (has ? "tile 96" : refused));
      }
  }
  GemmOperands others;
  others.a.codes = test::codes({3, 512}, ElementType::e4m3fnuz);
  others.b.codes = test::codes({4, 512});
  CHECK(test::message_of(
            [&] { (void)with_call(find_library_call("cublaslt.h100.fast"), others, {}); }) ==
        "call: expected operands in formats that cublaslt.h100.fast reads (e4m3fn x e4m3fn, e5m2 x "
        "e5m2, e4m3fn x e5m2, e5m2 x e4m3fn), got e4m3fnuz x e4m3fn");
}
