// The table of what was observed of cuBLASLt: written, read back, and every field checked.

#include "fp8lab/product/observed_calls.hpp"

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "io/temporary.hpp"

using namespace fp8lab;

namespace {

const std::string kColumns =
    "m,n,k,a,b,output,accumulation,outputs,fitting,interval,parts,tile,cut,order,scale_order,"
    "rounding\n";
const std::string kRow =
    "16,4096,2048,e4m3fn,e5m2,bf16,fast,65536,2,128,4,64,modulo,pairwise,-,parts_too\n";
const std::string kNoneFits = "16,4096,2048,e4m3fn,e4m3fn,f16,slow,65536,0,-,-,-,-,-,-,-\n";

std::string text_of(const std::string& rows) {
  return "# fp8lab cublaslt 1\n# gpu: a simulated one\n" + kColumns + rows;
}

/// `row` with field number `field` replaced.
std::string with_field(std::string row, int field, const std::string& value) {
  std::size_t begin = 0;
  for (; field > 0; --field) begin = row.find(',', begin) + 1;
  const std::size_t end = std::min(row.find(',', begin), row.size() - 1);
  return row.replace(begin, end - begin, value);
}

}  // namespace

TEST_CASE("a table of cuBLASLt's calls is read and written", "[cuda]") {
  const std::string text = text_of(kRow + kNoneFits);
  const CallTable table = parse_call_table(text, "t.csv");
  CHECK(to_text(table) == text);
  CHECK(table.header.at("gpu") == "a simulated one");
  const CallShape call{16, 4096, 2048, FormatId::e4m3fn, FormatId::e5m2, FormatId::bf16, true};
  const ObservedCall* row = table.find(call);
  REQUIRE(row != nullptr);
  CHECK(row->fitting == 2);
  CHECK(row->known == LtKnown{128, 4, 64, SplitCut::modulo, SplitOrder::pairwise, std::nullopt,
                              CallRounding::parts_too});
  CHECK(table.rows[1].known == LtKnown{});
  CallShape slow = call;
  slow.fast = false;
  CHECK(table.find(slow) == nullptr);
}

TEST_CASE("what a table of cuBLASLt's calls may not say is refused, with its place", "[cuda]") {
  const auto [field, value] = GENERATE(table<int, std::string>({{0, "0"},
                                                                {0, "16 "},
                                                                {1, "-3"},
                                                                {2, "2048.0"},
                                                                {3, "bf16"},
                                                                {4, ""},
                                                                {5, "e8m0"},
                                                                {6, "Fast"},
                                                                {7, "65537"},
                                                                {7, "0"},
                                                                {8, "-1"},
                                                                {8, "1"},
                                                                {9, "-128"},
                                                                {10, "0"},
                                                                {10, "33"},
                                                                {11, "0"},
                                                                {12, "rows"},
                                                                {13, "any"},
                                                                {14, "b_first"},
                                                                {15, "twice"},
                                                                {15, "once,1"},
                                                                {8, "0"},
                                                                {0, "99999999999999999999"}}));
  const std::string rows = with_field(kRow, field, value);
  INFO(rows);
  CHECK_THROWS_WITH(parse_call_table(text_of(rows), "t.csv"), contains("t.csv:4"));
}

TEST_CASE("text that is no table of cuBLASLt's calls is refused", "[cuda]") {
  const auto refused = [](const std::string& text, const std::string& says) {
    INFO(text);
    CHECK_THROWS_WITH(parse_call_table(text, "t.csv"), contains(says));
  };
  refused("", "t.csv: expected a line of columns");
  refused("# fp8lab cublaslt 2\n" + kColumns, "t.csv:1");
  refused("# fp8lab cublaslt 1\n# gpu: x\n", "a line of columns");
  refused("# fp8lab cublaslt 1\n# gpu: x\n# gpu: y\n" + kColumns,
          "t.csv:3: expected each key once");
  refused("# fp8lab cublaslt 1\n# gpu\n" + kColumns, "t.csv:2");
  refused("# fp8lab cublaslt 1\nm,n\n", "t.csv:2");
  refused(text_of(kRow + kRow), "t.csv:5: expected each call once");
  refused(text_of(kRow).substr(0, text_of(kRow).size() - 1), "t.csv:4: expected an end of line");
  refused(text_of("\n"), "t.csv:4: expected 16 fields, got 1");
}

TEST_CASE("rows are added to the file of cuBLASLt's calls, one for each call", "[cuda]") {
  const TemporaryFolder folder("lt_table");
  const std::filesystem::path file = folder.path() / "cublaslt.csv";
  const CallTable both = parse_call_table(text_of(kRow + kNoneFits), "t.csv");
  add_to_lt_table(file, both.header, both.rows[0]);
  CHECK(read_file(file) == text_of(kRow));
  add_to_lt_table(file, both.header, both.rows[1]);
  ObservedCall again = both.rows[0];
  again.fitting = 3;
  add_to_lt_table(file, both.header, again);
  CHECK(read_file(file) == text_of(kNoneFits + with_field(kRow, 8, "3")));
}

TEST_CASE("a search becomes a row of the table", "[cuda]") {
  const CallModel model{128, {2, 128, SplitCut::contiguous, SplitOrder::serial}};
  CallModel other = model;
  other.scale_order = ScaleOrder::b_then_fma_a;
  other.split.tile = 64;
  const CallShape call{16, 32, 256, FormatId::e4m3fn, FormatId::e4m3fn, FormatId::f32, false};
  LtKnown known{128,
                2,
                128,
                SplitCut::contiguous,
                SplitOrder::serial,
                ScaleOrder::product_then_fma,
                CallRounding::once};
  CHECK(row_of(call, LtFinding{512, 99, {model}, {}, 1.0}) == ObservedCall{call, 512, 1, known});
  known.tile = std::nullopt;
  known.scale_order = std::nullopt;
  CHECK(row_of(call, LtFinding{512, 99, {model, other}, {}, 1.0}) == ObservedCall{call, 512, 2, known});
  CHECK(row_of(call, LtFinding{512, 99, {}, model, 0.5}) == ObservedCall{call, 512, 0, {}});
}
