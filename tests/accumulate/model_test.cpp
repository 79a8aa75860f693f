#include <string>

#include "catch.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;

TEST_CASE("every registered model is valid and found by its name", "[accumulate]") {
  for (const InstructionModel& model : instruction_models()) {
    INFO(model.name);
    CHECK_NOTHROW(validate(model.accumulator));
    CHECK(&find_instruction_model(model.name) == &model);
  }
}

TEST_CASE("an unknown model is named in the error", "[accumulate]") {
  CHECK_THROWS_WITH(find_instruction_model("sm91.mma.e4m3"), contains("'sm91.mma.e4m3'"));
}
