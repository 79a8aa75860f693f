// Parameters that name models, and their parts.

#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "lab/experiment/model_parameters.hpp"
#include "lab/experiment/properties.hpp"

using namespace fp8lab;

namespace {

constexpr const char* kToml = R"(
question = "Which?"
mpi = true
models = ["exact", "fp32"]
one = "exact"
names = ["a", "b"]
k = 4
[range]
models = "1 to 8 of models"
one = "models"
names = "1 to 4"
)";

Parameters parameters() { return Parameters::from_toml(kToml, false); }

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("Lists of models split between models", "[experiment][models]") {
  Parameters p = parameters();
  p.set("models=fused:terms=4,F=9,exact,x=fused:M=3");
  CHECK(p.texts("models") == Texts{"fused:terms=4,F=9", "exact", "x=fused:M=3"});
  CHECK(p.to_toml("models") == R"(["fused:terms=4,F=9", "exact", "x=fused:M=3"])");
  p.set("one=fused:terms=4,F=9");
  CHECK(p.text("one") == "fused:terms=4,F=9");
  p.set("names=a,c");
  CHECK(p.texts("names") == Texts{"a", "c"});
}

TEST_CASE("A part is set in every model", "[experiment][models]") {
  Parameters p = parameters();
  p.set("models=m=fused:F=9,M=3,exact");
  p.set("models.F=12");
  CHECK(p.texts("models") == Texts{"m=fused:F=12,M=3", "exact:F=12"});
  p.set("models.e_min = -6");
  CHECK(p.texts("models") == Texts{"m=fused:F=12,M=3,e_min=-6", "exact:F=12,e_min=-6"});
  p.set("one.rounding=toward_zero");
  CHECK(p.text("one") == "exact:rounding=toward_zero");
  CHECK_THROWS_WITH(p.set("names.F=1"),
                    contains("set names.F: expected PARAMETER.F, of models, one"));
  CHECK_THROWS_WITH(p.set("k.F=1"), contains("got 'k'"));
  CHECK_THROWS_WITH(p.set("models.F=1,P=2"),
                    contains("set models.F: expected one value, got '1,P=2'"));
  CHECK_THROWS_WITH(p.set("models.=1"), contains("set: expected one of"));
  CHECK_THROWS_WITH(Parameters::from_toml("k = 4", false).set("k.F=1"),
                    contains("no parameter here names models"));
}

TEST_CASE("Every text that names a model is resolved, and no other", "[experiment][models]") {
  Parameters p = parameters();
  resolve_models(p, [](std::string_view text) { return std::string(text) + ":F=1"; });
  CHECK(p.texts("models") == Texts{"exact:F=1", "fp32:F=1"});
  CHECK(p.text("one") == "exact:F=1");
  CHECK(p.texts("names") == Texts{"a", "b"});
  CHECK_THROWS_WITH(
      resolve_models(p, [](std::string_view) -> std::string { throw Error("model", "m", "n"); }),
      "models: model: expected m, got n");
  CHECK(holds_models(p, "models"));
  CHECK_FALSE(holds_models(p, "names"));
  CHECK_FALSE(holds_models(p, "k"));
  CHECK_FALSE(holds_models(p, "nothing"));
}

TEST_CASE("An experiment says whether MPI carries its messages", "[experiment]") {
  CHECK(supports_mpi(kToml));
  CHECK_FALSE(supports_mpi("k = 4"));
  CHECK_FALSE(supports_mpi("mpi = false"));
  CHECK_FALSE(parameters().values().contains("mpi"));
  CHECK_THROWS_WITH(supports_mpi("mpi = 1"),
                    "default.toml: mpi: expected true or false, got a value of another type");
  CHECK_THROWS_WITH(supports_mpi("mpi = \"true\""), contains("mpi: expected true or false"));
  CHECK_THROWS_WITH(supports_mpi("mpi = = 1"), contains("default.toml:1:7: "));
}
