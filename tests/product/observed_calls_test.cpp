// The table of what was observed of a library's calls: written, read back, every field checked, and
// a product computed as a call in it.

#include "fp8lab/product/calls.hpp"

#include <fmt/format.h>

#include <string>
#include <tuple>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/io/checksum.hpp"

using namespace fp8lab;

namespace {

const std::string kFirst = "# fp8lab cublaslt 2\n";
const std::string kModel = "# gpu: a simulated one\n# model: sm90.wgmma.e4m3\n";
const std::string kColumns =
    "m,n,k,a,b,output,accumulation,outputs,fitting,interval,parts,tile,cut,order,scale_order,"
    "rounding\n";
const std::string kRow =
    "16,4096,2048,e4m3fn,e5m2,bf16,fast,65536,1,128,4,64,modulo,pairwise,b_then_fma_a,parts_too\n";
const std::string kTwo =
    "16,32,512,e4m3fn,e4m3fn,f32,slow,512,2,128,2,128,contiguous,serial,b_then_fma_a,once\n"
    "16,32,512,e4m3fn,e4m3fn,f32,slow,512,2,0,4,64,modulo,tree,b_then_fma_a,once\n";
const std::string kNoneFits = "16,4096,2048,e4m3fn,e4m3fn,f16,slow,65536,0,-,-,-,-,-,-,-\n";

std::string text_of(const std::string& rows) { return kFirst + kModel + kColumns + rows; }

std::string with_checksum(const std::string& rows) {
  const std::string below = kModel + kColumns + rows;
  return kFirst + "# crc32: " + crc32_text(below) + "\n" + below;
}

/// `row` with field number `field` replaced.
std::string with_field(std::string row, int field, const std::string& value) {
  std::size_t begin = 0;
  for (; field > 0; --field) begin = row.find(',', begin) + 1;
  const std::size_t end = std::min(row.find(',', begin), row.size() - 1);
  return row.replace(begin, end - begin, value);
}

const CallShape kCall{16,           4096, 2048, FormatId::e4m3fn, FormatId::e5m2, FormatId::bf16,
                      /*fast=*/true};

}  // namespace

TEST_CASE("a table of observed calls is read and written", "[product]") {
  const std::string text = with_checksum(kRow + kTwo + kNoneFits);
  const CallTable table = parse_call_table(text, "t.csv");
  CHECK(to_text(table) == text);
  CHECK(to_text(parse_call_table(text_of(kRow + kTwo + kNoneFits), "t.csv")) == text);
  CHECK(table.header.at("gpu") == "a simulated one");
  CHECK(table.model == "sm90.wgmma.e4m3");
  const ObservedCall* row = table.find(kCall);
  REQUIRE(row != nullptr);
  CHECK(row->fitting == std::vector{CallModel{128,
                                              {4, 64, SplitCut::modulo, SplitOrder::pairwise},
                                              ScaleOrder::b_then_fma_a,
                                              CallRounding::parts_too}});
  CHECK(table.calls[1].fitting.size() == 2);
  CHECK(table.calls[2].fitting.empty());
  CallShape slow = kCall;
  slow.fast = false;
  CHECK(table.find(slow) == nullptr);
}

TEST_CASE("what a table of observed calls may not say is refused, with its place", "[product]") {
  const auto [field, value] =
      GENERATE(table<int, std::string>({{0, "0"},        {0, "16 "},
                                        {1, "-3"},       {2, "2048.0"},
                                        {3, "bf16"},     {4, ""},
                                        {5, "e8m0"},     {6, "Fast"},
                                        {7, "0"},        {8, "-1"},
                                        {9, "-128"},     {9, "-"},
                                        {10, "0"},       {10, "33"},
                                        {11, "0"},       {12, "rows"},
                                        {13, "any"},     {13, "-"},
                                        {14, "b_first"}, {15, "twice"},
                                        {8, "0"},        {0, "99999999999999999999"}}));
  const std::string rows = with_field(kRow, field, value);
  INFO(rows);
  CHECK_THROWS_WITH(parse_call_table(text_of(rows), "t.csv"), contains("t.csv:5"));
}

TEST_CASE("numbers in a table of observed calls reach their limits and no further", "[product]") {
  const std::string whole =
      with_field(with_field(with_field(kRow, 10, "1"), 12, "contiguous"), 13, "serial");
  const auto accepted = [](const std::string& row) {
    INFO(row);
    CHECK(to_text(parse_call_table(text_of(row), "t.csv")) == with_checksum(row));
  };
  const auto refused = [](const std::string& row, const std::string& says) {
    INFO(row);
    CHECK_THROWS_WITH(parse_call_table(text_of(row), "t.csv"), contains("t.csv:5: " + says));
  };
  // Name, place and least value of each field.
  for (const auto& [name, field, least] : {std::tuple{"m", 0, 1},
                                           {"n", 1, 1},
                                           {"k", 2, 1},
                                           {"outputs", 7, 1},
                                           {"interval", 9, 0},
                                           {"tile", 11, 1}}) {
    const std::string range = std::string(name) + ": expected an integer from " +
                              std::to_string(least) + " to 2147483647";
    accepted(with_field(whole, field, "2147483647"));
    refused(with_field(whole, field, "2147483648"), range);
    accepted(with_field(whole, field, std::to_string(least)));
    refused(with_field(whole, field, std::to_string(least - 1)), range);
  }
  // As many parts as tiles of a term, and one more.
  accepted(with_field(with_field(kRow, 11, "1"), 10, "2048"));
  refused(with_field(with_field(kRow, 11, "1"), 10, "2049"), "parts: expected an integer");
  accepted(with_field(kRow, 10, "32"));
  refused(with_field(kRow, 10, "33"), "parts: expected at most 32 tiles");
}

TEST_CASE("text that is no table of observed calls is refused", "[product]") {
  const auto refused = [](const std::string& text, const std::string& says) {
    INFO(text);
    CHECK_THROWS_WITH(parse_call_table(text, "t.csv"), contains(says));
  };
  refused("", "t.csv: expected # fp8lab cublaslt 2, got an empty file");
  refused("m,n\n", "t.csv: expected # fp8lab cublaslt 2");
  refused("# fp8lab cublaslt 1\n" + kModel + kColumns, "t.csv:1");
  refused(kFirst + kModel, "t.csv:4");
  refused(kFirst + "# gpu: x\n# gpu: y\n" + kColumns, "t.csv:3: expected each key once");
  refused(kFirst + "# gpu\n" + kColumns, "t.csv:2");
  refused(kFirst + "# gpu: x\n" + kColumns, "t.csv: expected a line `# model: INSTRUCTION`");
  refused(kFirst + "# model: sm91\n" + kColumns, "sm91");
  refused(kFirst + kModel + "m,n\n", "t.csv:4");
  refused(text_of(kRow + kTwo + kRow), "t.csv:8: expected the rows of a call together");
  refused(text_of(kTwo.substr(0, kTwo.find('\n') + 1)), "expected 1 more rows of 16x32x512");
  refused(text_of(kTwo.substr(0, kTwo.find('\n') + 1) + kRow), "t.csv:6: expected 1 more rows");
  refused(text_of(with_field(kRow, 8, "2") + with_field(kRow, 8, "2")), "each candidate once");
  refused(text_of(kRow).substr(0, text_of(kRow).size() - 1), "t.csv: expected an end of line");
  refused(text_of("\n"), "row 2: expected 16 cells, got 1");
  refused(text_of(with_field(kRow, 15, "once,1")), "row 2: expected 16 cells, got 17");
}

TEST_CASE("a changed or cut table of observed calls is refused by its checksum", "[product]") {
  const std::string text = with_checksum(kRow + kTwo);
  std::string changed = text;
  changed[changed.find("pairwise")] = 'P';
  CHECK_THROWS_WITH(parse_call_table(changed, "t.csv"), contains("t.csv:2: crc32"));
  const std::string cut = text.substr(0, text.size() - kTwo.size());
  CHECK_THROWS_WITH(parse_call_table(cut, "t.csv"), contains("t.csv:2: crc32"));
}

TEST_CASE("a call in a table is named by file, accumulation and choices", "[product]") {
  CHECK(is_table_call("a/cublaslt.csv"));
  CHECK(is_table_call("cublaslt.csv:fast"));
  CHECK_FALSE(is_table_call("cublaslt.h100.fast"));
  const TableCall call = parse_table_call("x/t.csv:slow,output=bf16,order=tree");
  CHECK(call.file == "x/t.csv");
  CHECK_FALSE(call.fast);
  CHECK(call.output == FormatId::bf16);
  CHECK(call.choices == std::vector{std::pair<std::string, std::string>{"order", "tree"}});
  for (const char* text : {"t.csv", "t.csv:", "t.csv:quick", "t.csv:fast,order", "t.csv:fast,F=1",
                           "t.csv:fast,order=tree,order=serial", "t.csv:fast,output=fp7"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_table_call(text), Error);
  }
}

TEST_CASE("what an observation leaves open is chosen, or an error that lists it", "[product]") {
  const CallTable table = parse_call_table(text_of(kRow + kTwo + kNoneFits), "t.csv");
  const CallShape two{16, 32, 512, FormatId::e4m3fn, FormatId::e4m3fn, FormatId::f32, false};
  const auto candidate = [&](const std::string& choices, const CallShape& shape) {
    return candidate_of(table, parse_table_call("t.csv:slow" + choices), shape);
  };
  CHECK_THROWS_WITH(candidate("", two),
                    contains("interval=128|0, parts=2|4, tile=128|64, cut=contiguous|modulo, "
                             "order=serial|tree") &&
                        contains("got 2 candidates"));
  CHECK(candidate(",order=tree", two) == table.calls[1].fitting[1]);
  CHECK(candidate(",interval=128", two) == table.calls[1].fitting[0]);
  CHECK(candidate(",interval=128,parts=2", two) == table.calls[1].fitting[0]);
  CHECK_THROWS_WITH(candidate(",interval=128,parts=4", two), contains("parts: expected 2"));
  CHECK_THROWS_WITH(candidate(",scale_order=product_then_fma", two),
                    contains("scale_order: expected b_then_fma_a, as observed"));
  CHECK_THROWS_WITH(
      candidate("", {16, 4096, 2048, FormatId::e4m3fn, FormatId::e4m3fn, FormatId::f16, false}),
      contains("a candidate that gives the observed outputs, got none"));
  CHECK_THROWS_WITH(
      candidate("", {17, 4096, 2048, FormatId::e4m3fn, FormatId::e4m3fn, FormatId::f16, false}),
      contains("call: expected a call in t.csv, got 17x4096x2048"));
}

TEST_CASE("a product is computed as a call in a table", "[product]") {
  const RandomStream random(5, "observed");
  std::vector<std::byte> a(16 * 512);
  std::vector<std::byte> b(32 * 512);
  for (std::size_t i = 0; i < a.size() + b.size(); ++i)
    (i < a.size() ? a[i] : b[i - a.size()]) = static_cast<std::byte>(
        encode(format(FormatId::e4m3fn), kNvidiaSatfinite, static_cast<float>(random.normal(i))));
  const float scale = 0.3F;
  const std::span<const float> one(&scale, 1);
  GemmOperands operands;
  operands.a.codes = {ElementType::e4m3fn, {16, 512}, a};
  operands.b.codes = {ElementType::e4m3fn, {32, 512}, b};
  operands.a.scales = operands.b.scales = TensorView{ElementType::f32, {}, std::as_bytes(one)};
  const CallTable table = parse_call_table(text_of(kTwo), "t.csv");
  GemmSpec expected{.model = "sm90.wgmma.e4m3"};
  expected.model = "sm90.wgmma.e4m3";
  expected.split = {4, 64, SplitCut::modulo, SplitOrder::tree};
  expected.scale_order = ScaleOrder::b_then_fma_a;
  const TableCall call = parse_table_call("t.csv:slow,order=tree");
  const GemmSpec spec = with_call(table, call, operands, {});
  CHECK(compute(make_product(operands, spec)) == compute(make_product(operands, expected)));
  CHECK(compute(make_product(operands, spec)) !=
        compute(make_product(operands,
                             with_call(find_library_call("cublaslt.h100.slow"), operands, {}))));

  GemmOperands turned = operands;  // B as [k, n]
  std::vector<std::byte> b_turned(b.size());
  for (std::size_t i = 0; i < b.size(); ++i) b_turned[i % 512 * 32 + i / 512] = b[i];
  turned.b.codes = {ElementType::e4m3fn, {512, 32}, b_turned};
  turned.b.transposed = true;
  CHECK(compute(make_product(turned, with_call(table, call, turned, {}))) ==
        compute(make_product(operands, expected)));

  const auto refused = [&](const std::string& text, const GemmOperands& other,
                           const std::string& says, const GemmSpec& from = {}) {
    INFO(says);
    CHECK_THROWS_WITH(with_call(table, parse_table_call(text), other, from), contains(says));
  };
  refused("t.csv:fast", operands, "expected a call in t.csv, got 16x32x512");
  refused("t.csv:slow,order=tree,output=bf16", operands, "expected output=f32");
  // A scale a row of either operand, as a tensor or as inverse scales that were read already.
  const std::vector<float> many(32, 1.0F);
  for (const bool of_a : {true, false})
    for (const bool read : {false, true}) {
      INFO((of_a ? "A" : "B") << (read ? ", inverse scales" : ", a tensor"));
      const auto rows_of = [&](std::int64_t count) {
        const auto scales = std::span(many).first(static_cast<std::size_t>(count));
        GemmOperands rows = operands;
        (of_a ? rows.a.scales : rows.b.scales).reset();
        if (read)
          (of_a ? rows.a.inverse : rows.b.inverse) = InverseScales{.values = scales};
        else
          (of_a ? rows.a.scales : rows.b.scales) =
              TensorView{ElementType::f32, {count}, std::as_bytes(scales)};
        return rows;
      };
      CHECK_NOTHROW(with_call(table, call, rows_of(1), {}));
      const std::int64_t count = of_a ? 16 : 32;
      for (const std::int64_t several : {std::int64_t{2}, count})
        refused("t.csv:slow,order=tree", rows_of(several),
                argument(of_a ? "scale_a" : "scale_b") +
                    fmt::format(": expected one scale, as the calls of the table had, got {}",
                                several));
    }
  GemmSpec split{.model = "sm90.wgmma.e4m3"};
  split.split.parts = 2;
  refused("t.csv:slow,order=tree", operands, "none with a table", split);
  const CallTable twice = parse_call_table(
      text_of("16,32,512,e4m3fn,e4m3fn,bf16,fast,9,1,0,1,128,contiguous,serial,b_then_fma_a,"
              "sum_too\n"),
      "t.csv");
  GemmSpec narrow{.model = "sm90.wgmma.e4m3"};
  narrow.output = default_output(FormatId::bf16);
  CHECK_THROWS_WITH(with_call(twice, parse_table_call("t.csv:fast"), operands, narrow),
                    contains("rounding: expected once, as products round, got sum_too"));
}

TEST_CASE("a table of observed calls: a checksum is the second line, others are keys",
          "[product]") {
  const std::string below = kModel + kColumns + kTwo;
  const std::string line = "# crc32: 00000000\n";
  CHECK_THROWS_WITH(parse_call_table(kFirst + line + below, "t.csv"),
                    contains("t.csv:2: crc32: expected " + crc32_text(below)));
  const CallTable later = parse_call_table(
      kFirst + "# gpu: x\n" + line + "# model: sm90.wgmma.e4m3\n" + kColumns + kTwo, "t.csv");
  CHECK(later.header.at("crc32") == "00000000");
  CHECK(later.header.size() == 2);
  CHECK(later.model == "sm90.wgmma.e4m3");
  // Rows that are no table are counted from the line above them.
  CHECK_THROWS_WITH(parse_call_table(kFirst + kModel + kColumns + "\"16\n", "t.csv"),
                    "t.csv: below line 3: row 2: open quote");
  CHECK_THROWS_WITH(parse_call_table(kFirst + line.substr(0, 9) + crc32_text(kModel + "a,b\n1\n") +
                                         "\n" + kModel + "a,b\n1\n",
                                     "t.csv"),
                    "t.csv: below line 4: row 2: expected 2 cells, got 1");
}

TEST_CASE("a candidate in words has its split where it has one", "[product]") {
  CallModel model;
  model.interval = 128;
  model.split = {.parts = 1, .tile = 64, .cut = SplitCut::modulo, .order = SplitOrder::tree};
  model.scale_order = ScaleOrder::b_then_fma_a;
  model.rounding = CallRounding::sum_too;
  CHECK(to_string(model) == "N_C 128, b_then_fma_a, sum_too");
  model.split.parts = 2;
  CHECK(to_string(model) == "N_C 128, split 2 modulo tree tile 64, b_then_fma_a, sum_too");
}
