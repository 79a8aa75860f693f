// Models as text: the form alone.

#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/model_text.hpp"

using namespace fp8lab;

TEST_CASE("A model's text has a name, a base and parameters", "[core][model_text]") {
  const ModelText plain = ModelText::parse("model", "sm90.wgmma.e4m3");
  CHECK(plain == ModelText{"", "sm90.wgmma.e4m3", {}});
  const ModelText whole = ModelText::parse("model", "mine=fused:terms=16,e_min=-6,P=+1");
  CHECK(whole == ModelText{"mine", "fused", {{"terms", "16"}, {"e_min", "-6"}, {"P", "+1"}}});
  for (const std::string text : {"exact", "a=b", "fused:F=13", "a=b:F=1,M=2"}) {
    INFO(text);
    CHECK(ModelText::parse("model", text).text() == text);
  }
}

TEST_CASE("Setting a part changes it in its place, or adds it", "[core][model_text]") {
  ModelText model = ModelText::parse("model", "m=fused:F=13,M=10");
  model.set("F", "9");
  CHECK(model.text() == "m=fused:F=9,M=10");
  model.set("terms", "4");
  CHECK(model.text() == "m=fused:F=9,M=10,terms=4");
}

TEST_CASE("Texts of another form are refused with the form", "[core][model_text]") {
  for (const std::string text :
       {"",        ":",     "=",         "a=",         "=a",         "a:",      "a:F",
        "a:F=",    "a:=1",  "a:F=1,",    "a:F=1,,M=2", "a b",        "a:F= 1",  "a:F=1:2",
        "a:F=1=2", "a=b=c", "a:F=\"1\"", "a;b",        "a:F=1\nM=2", "\xc3\xa4"}) {
    INFO("'" << text << "'");
    CHECK_THROWS_WITH(ModelText::parse("qk_model", text),
                      contains("qk_model: expected [NAME=]BASE[:PARAMETER=VALUE,...]"));
  }
  CHECK_THROWS_WITH(ModelText::parse("model", "a:F=1,M=2,F=3"),
                    contains("each parameter once, got F twice in 'a:F=1,M=2,F=3'"));
  CHECK_NOTHROW(ModelText::parse("model", std::string(kMostModelText, 'a')));
  CHECK_THROWS_WITH(ModelText::parse("model", std::string(kMostModelText + 1, 'a')),
                    contains("at most 1000 characters, got 1001"));
}

TEST_CASE("A list of models splits where a model ends", "[core][model_text]") {
  using List = std::vector<std::string>;
  CHECK(split_model_list("a,b:F=10,M=13,c") == List{"a", "b:F=10,M=13", "c"});
  CHECK(split_model_list("b:F=10,d=b:F=1,M=2,e=c:M=3") == List{"b:F=10", "d=b:F=1,M=2", "e=c:M=3"});
  // A name without parameters reads as a parameter.
  CHECK(split_model_list("b:F=10,e=c") == List{"b:F=10,e=c"});
  CHECK(split_model_list(" a , b:F=1 , M=2 ") == List{"a", "b:F=1,M=2"});
  // Without a definition before it, nothing is joined.
  CHECK(split_model_list("a,F=10") == List{"a", "F=10"});
  CHECK(split_model_list("16:256:*2,512") == List{"16:256:*2", "512"});
  CHECK(split_model_list("") == List{""});
  CHECK(split_model_list("a,,b") == List{"a", "", "b"});
  CHECK(split_model_list("\ta\t, \tb:F=1\t,\t M=2 ,\t") == List{"a", "b:F=1,M=2", ""});
}
