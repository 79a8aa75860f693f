#include "fp8lab/core/short_number.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "catch.hpp"

using namespace fp8lab;

TEST_CASE("short numbers have four digits, integers below a million all of theirs", "[core]") {
  struct Case {
    double value;
    const char* text;
  };
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const Case& c : {Case{0.0, "0"},           {-0.0, "-0"},         {1.0, "1"},
                        {0.12345, "0.1235"},      {12.345, "12.35"},    {1234.4, "1234"},
                        {1234.6, "1235"},         {9999.0, "9999"},     {9999.4, "9999"},
                        {9999.5, "10000"},        {9999.7, "10000"},    {10000.0, "10000"},
                        {12345.0, "12345"},       {12345.6, "12346"},   {123456.4, "123456"},
                        {999999.0, "999999"},     {999999.4, "999999"}, {1e6, "1e+06"},
                        {1234567.0, "1.235e+06"}, {1e-4, "0.0001"},     {0.00012345, "0.0001234"},
                        {9.99e-5, "9.99e-05"},    {kInf, "inf"},        {std::nan(""), "nan"},
                        {-std::nan(""), "nan"}}) {
    INFO(c.value);
    CHECK(short_number(c.value) == c.text);
    if (!std::isnan(c.value) && c.value != 0.0)
      CHECK(short_number(-c.value) == fmt::format("-{}", c.text));
  }
}
