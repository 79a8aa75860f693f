#include <fmt/format.h>

#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "lab/plots/text.hpp"

using namespace fp8lab;

namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ' ')
      words.emplace_back();
    else
      words.back() += c;
  }
  return words;
}

}  // namespace

TEST_CASE("wrapped text keeps every character and breaks at spaces alone", "[experiment]") {
  const std::vector<std::string> pieces{"a",         "FP8-LM", "E4M3",  "--scale-format", "µ±2",
                                        "tanh(x/y)", "1e-3",   "\tend", "10_000,"};
  const RandomStream stream(7, "wrap");
  std::uint64_t at = 0;
  for (int text = 0; text < 200; ++text) {
    std::string whole;
    for (std::uint64_t i = 1 + stream.below(at++, 12); i > 0; --i)
      whole += (whole.empty() ? "" : " ") + pieces[stream.below(at++, pieces.size())];
    const std::size_t width = 1 + stream.below(at++, 40);
    const std::vector<std::string> lines = wrap(whole, width);
    CAPTURE(whole, width, lines);
    REQUIRE(fmt::format("{}", fmt::join(lines, " ")) == whole);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      // Too long only where one word is, and no line ends before it had to.
      REQUIRE((columns_of(lines[i]) <= width || lines[i].find(' ') == std::string::npos));
      if (i == 0) continue;
      const std::string next = words_of(lines[i]).front();
      REQUIRE(columns_of(lines[i - 1]) + 1 + columns_of(next) > width);
    }
  }
}
