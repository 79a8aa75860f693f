// Tables as columns over rows.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "lab/experiment/row_table.hpp"

namespace {

enum class Kind : std::uint8_t { near, far };
std::string_view to_string(Kind kind) { return kind == Kind::near ? "near" : "far"; }

struct Row {
  std::string name;
  std::size_t count = 0;
  float error = 0.0F;
  bool fits = false;
  Kind kind = Kind::near;
};

}  // namespace

using namespace fp8lab;

TEST_CASE("Each column has its own cell of each row", "[experiment]") {
  const std::vector<Row> rows{{"a, b", 3, 0.5F, true, Kind::near},
                              {"c", 0, 2.0F, false, Kind::far}};
  const double scale = 100.0;
  const Table table =
      row_table<Row>("rows", "Rows",
                     {{"fits", "", "whether", &Row::fits},
                      {"name", "", "which", &Row::name},
                      {"kind", "", "of what", &Row::kind},
                      {"count", "1", "how many", &Row::count},
                      {"error", "%", "how far",
                       [&](const Row& row) { return scale * static_cast<double>(row.error); }},
                      {"note", "", "fixed", [](const Row&) { return "as it is"; }}},
                     rows);
  CHECK(table.name() == "rows");
  CHECK(table.title() == "Rows");
  REQUIRE(table.columns().size() == 6);
  CHECK(table.columns()[4].unit == "%");
  CHECK(table.columns()[4].description == "how far");
  CHECK(table.csv() ==
        "fits,name,kind,count,error,note\n"
        "true,\"a, b\",near,3,50.0,as it is\n"
        "false,c,far,0,200.0,as it is\n");
}

TEST_CASE("Cells keep what a value is", "[experiment]") {
  CHECK(std::get<std::int64_t>(to_cell(std::int8_t{-3})) == -3);
  CHECK(std::get<std::int64_t>(to_cell(7U)) == 7);
  CHECK(std::get<double>(to_cell(0.5F)) == 0.5);
  CHECK(std::get<bool>(to_cell(true)));
  CHECK(std::get<std::string>(to_cell("text")) == "text");
  CHECK(std::get<std::string>(to_cell(std::string_view("view"))) == "view");
  CHECK(std::get<std::string>(to_cell(Kind::far)) == "far");
  CHECK(csv_line({to_cell(std::numeric_limits<double>::quiet_NaN())}) == "nan");
}
