// What fp8lab-cuda says at the end of a run: the closing table, what was found of cuBLASLt, errors.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "catch.hpp"
#include "cuda/lt_operand_c.hpp"
#include "cuda/tool/errors.hpp"
#include "cuda/tool/lt_text.hpp"
#include "cuda/tool/table.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

TEST_CASE("the closing table says how many rows agree, differ and have no verdict", "[cuda]") {
  const std::string text = table_text({{"first", 100, 0},
                                       {"second", 100, 3, "", "all with NaN"},
                                       {"third", 0, 0, "crashed"},
                                       {"fourth", 0, 0, "", "not run: needs wgmma"}});
  CHECK_THAT(text, contains("checked"));
  CHECK_THAT(text, contains("\nfirst                                                      100"
                            "           0\n"));
  CHECK_THAT(text, contains("100           3  all with NaN\n"));
  CHECK_THAT(text, contains("-           -  crashed\n"));
  CHECK_THAT(text, contains("-           -  not run: needs wgmma\n"));
  CHECK_THAT(text, contains("\n1 row agrees, 1 row differs, 2 rows have no verdict\n"));
  CHECK_THAT(table_text({{"a", 1, 0}, {"b", 1, 0}}), contains("\n2 rows agree, 0 rows differ\n"));
  CHECK(table_text({}).empty());
}

TEST_CASE("a long name does not run into the numbers", "[cuda]") {
  const std::string name(60, 'x');
  CHECK_THAT(table_text({{name, 100'000'000'000'000, 0}}), contains(name + " 100000000000000 "));
}

TEST_CASE("a row that differs, or that has a problem, does not agree", "[cuda]") {
  CHECK(agrees({"", 5, 0}));
  CHECK(agrees({"", 0, 0, "", "not run"}));
  CHECK(!agrees({"", 5, 1}));
  CHECK(!agrees({"", 0, 0, "crashed"}));
}

TEST_CASE("the table as a file has quoted texts", "[cuda]") {
  const std::filesystem::path file = std::filesystem::temp_directory_path() /
                                     ("fp8lab_tool_text_" + std::to_string(getpid()) + ".csv");
  write_table(file, {{"a \"name\"", 3, 1, "", "x, y"}});
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  std::filesystem::remove(file);
  CHECK(text.str() ==
        "instruction,cases,mismatches,problem,note\n\"a \"\"name\"\"\",3,1,\"\",\"x, y\"\n");
}

TEST_CASE("every candidate that gives most outputs of cuBLASLt is named", "[cuda]") {
  using enum ScaleOrder;
  std::vector<LtCandidate> candidates{{0, product_then_fma, 7},     {128, product_then_fma, 100},
                                      {128, product_then_add, 100}, {64, a_then_fma_b, 99},
                                      {256, product_then_fma, 100}, {512, product_then_fma, 100}};
  CHECK(ranking_text(candidates, 100) ==
        "  all 100 outputs: N_C 128 product_then_fma, N_C 128 product_then_add, "
        "N_C 256 product_then_fma, N_C 512 product_then_fma\n"
        "  the next, 99 of 100 outputs: N_C 64 a_then_fma_b\n");
  // One output of many is not rounded away.
  CHECK_THAT(ranking_text({{0, product_then_fma, 9'999'999}}, 10'000'000),
             contains("  9999999 of 10000000 outputs: N_C 0 product_then_fma\n"));
}

TEST_CASE("observed calls are counted by what they do", "[cuda]") {
  const CallModel one_chain{};
  const CallModel promoted{.interval = 128};
  CallShape fast;
  CallShape slow;
  slow.fast = false;
  const std::vector<std::string> lines = summary_of({{slow, 10, {promoted}},
                                                     {fast, 10, {one_chain}},
                                                     {slow, 10, {promoted}},
                                                     {fast, 10, {one_chain, promoted}},
                                                     {fast, 10, {}}});
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "5 calls: one candidate is left of 3, several of 1, none of 1");
  CHECK(lines[1] == "     2  slow: " + to_string(promoted));
  CHECK(lines[2] == "     1  fast: " + to_string(one_chain));
}

TEST_CASE("errors are told of the largest output, of the norm, and away from zero", "[cuda]") {
  const Errors e = errors_of({1.0F, -3.0F, 1e-30F}, {2.0F, -4.0F, 0.0F});
  CHECK(e.max_to_largest == 0.25);
  CHECK_THAT(e.relative_l2, Catch::Matchers::WithinRel(std::sqrt(2.0 / 20.0)));
  CHECK_THAT(e.bias, Catch::Matchers::WithinRel(-2.0 / 6.0));
  CHECK(errors_of({3.0F, -5.0F}, {2.0F, -4.0F}).bias > 0.0);
  CHECK(errors_of({1.0F}, {0.0F}).relative_l2 == 0.0);
}

// On an H200, cuBLASLt 130100 refused all FP8 outputs whose C was D, and took those without C.
TEST_CASE("an FP8 output of cuBLASLt has no C of its own memory", "[cuda]") {
  using enum FormatId;
  for (const FormatId wide : {f32, bf16, f16}) {
    CHECK(lt_operand_c(wide).format == wide);
    CHECK(lt_operand_c(wide).in_place);
  }
  for (const FormatId narrow : {e4m3fn, e5m2}) {
    CHECK(lt_operand_c(narrow).format == bf16);
    CHECK(!lt_operand_c(narrow).in_place);
  }
}
