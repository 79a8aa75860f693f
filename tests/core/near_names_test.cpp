#include "fp8lab/core/names.hpp"

#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/product/calls.hpp"

using namespace fp8lab;

namespace {

using Near = std::vector<std::string_view>;

const Near kSome{"verify", "identify", "reveal", "run", "report", "gemm", "e4m3fn", "e4m3fnuz"};

}  // namespace

TEST_CASE("names are near if a few letters make them", "[core]") {
  CHECK(near_names(kSome, "verfy") == Near{"verify"});
  CHECK(near_names(kSome, "veriyf") == Near{"verify"});  // two letters swapped
  CHECK(near_names(kSome, "VERIFY") == Near{"verify"});
  CHECK(near_names(kSome, "gem") == Near{"gemm"});
  CHECK(near_names(kSome, "runn") == Near{"run"});
  CHECK(near_names(kSome, "e4m3") == Near{"e4m3fn", "e4m3fnuz"});  // parts of them
  CHECK(near_names(kSome, "reports") == Near{"report"});
  for (const char* far : {"", "x", "quantize", "ge", "e5", "ab"}) {
    CAPTURE(far);
    CHECK(near_names(kSome, far).empty());
  }
  // The nearest come first, and those that are two changes further away do not come.
  CHECK(near_names(Near{"aaaaaaabbb", "aaaaaaaaaa", "aaaaaaaaab"}, "aaaaaaaaa") ==
        Near{"aaaaaaaaaa", "aaaaaaaaab"});
  CHECK(near_names(Near{"n1", "n2", "n3", "n4"}, "n5").size() == 3);
}

TEST_CASE("an error lists few names, and of many those that were meant", "[core]") {
  CHECK(expected_name(Near{"a", "b"}, "quantize") == "one of a, b");
  CHECK(expected_name(kSome, "gem").ends_with("e4m3fnuz (did you mean gemm?)"));
  std::vector<std::string> made;
  for (int i = 0; i < 17; ++i) made.push_back("name" + std::to_string(100 + i));
  const Near many(made.begin(), made.end());
  CHECK(expected_name(Near(many.begin(), many.begin() + 16), "x").ends_with("name115"));
  CHECK(expected_name(many, "x") == "one of 17 names such as name100, name101, name102");
  CHECK(expected_name(many, "nam116").starts_with("one of 17 names (did you mean name116 or "));
  CHECK(did_you_mean(many, "x").empty());
}

TEST_CASE("unknown models and calls say which were meant, and what was given", "[core]") {
  CHECK_THROWS_WITH(find_instruction_model("sm90.wgma.e4m3"),
                    contains("model: expected one of ") &&
                        contains(" names (did you mean sm90.wgmma.e4m3") &&
                        contains(", got 'sm90.wgma.e4m3'"));
  CHECK_THROWS_WITH(find_library_call("deepgem.h100"),
                    contains("call: expected one of ") && contains("(did you mean deepgemm.h100") &&
                        contains(", got 'deepgem.h100'"));
  std::string message;
  try {
    find_instruction_model("sm90.wgma.e4m3");
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message.size() < 300);  // not all names
}
