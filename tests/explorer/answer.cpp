// Answers the questions on standard input, one a line, through the functions that the page calls;
// answer.js does the same with the page's own module.

#include <cstdint>
#include <iostream>
#include <sstream>
#include <string>

extern "C" {
const char* fp8lab_describe();
const char* fp8lab_cast_table(double x, const char* profile);
const char* fp8lab_error_curve(const char* format, const char* profile, double low, double high,
                               int points);
const char* fp8lab_outlier(const char* recipe, const char* format, int elements, double sigma,
                           double outlier, int position, int tile, int flush, std::uint32_t seed);
const char* fp8lab_accumulation(const char* model, const char* distribution, int k,
                                int promotion_interval, int scaled, std::uint32_t seed);
const char* fp8lab_step(const char* model, const char* a, const char* b, double c);
const char* fp8lab_auto_scaling(const char* format, double threshold, int steps_to_double,
                                int clean_steps, const char* growth, const char* trace, int steps,
                                std::uint32_t seed);
}

namespace {

class Words {
 public:
  explicit Words(const std::string& line) : stream_(line) {}
  std::string text() {
    std::string word;
    stream_ >> word;
    return word;
  }
  double number() { return std::stod(text()); }
  int integer() { return std::stoi(text()); }
  std::uint32_t seed() { return static_cast<std::uint32_t>(std::stoul(text())); }

 private:
  std::istringstream stream_;
};

const char* answer(const std::string& line) {
  Words words(line);
  const std::string what = words.text();
  if (what == "describe") return fp8lab_describe();
  if (what == "cast") {
    const double x = words.number();
    return fp8lab_cast_table(x, words.text().c_str());
  }
  if (what == "curve") {
    const std::string format = words.text();
    const std::string profile = words.text();
    const double low = words.number();
    const double high = words.number();
    return fp8lab_error_curve(format.c_str(), profile.c_str(), low, high, words.integer());
  }
  if (what == "outlier") {
    const std::string recipe = words.text();
    const std::string format = words.text();
    const int elements = words.integer();
    const double sigma = words.number();
    const double outlier = words.number();
    const int position = words.integer();
    const int tile = words.integer();
    const int flush = words.integer();
    return fp8lab_outlier(recipe.c_str(), format.c_str(), elements, sigma, outlier, position, tile,
                          flush, words.seed());
  }
  if (what == "step") {
    const std::string model = words.text();
    const std::string a = words.text();
    const std::string b = words.text();
    return fp8lab_step(model.c_str(), a.c_str(), b.c_str(), words.number());
  }
  if (what == "auto_scaling") {
    const std::string format = words.text();
    const double threshold = words.number();
    const int steps_to_double = words.integer();
    const int clean_steps = words.integer();
    const std::string growth = words.text();
    const std::string trace = words.text();
    const int steps = words.integer();
    return fp8lab_auto_scaling(format.c_str(), threshold, steps_to_double, clean_steps,
                               growth.c_str(), trace.c_str(), steps, words.seed());
  }
  const std::string model = words.text();
  const std::string distribution = words.text();
  const int k = words.integer();
  const int interval = words.integer();
  const int scaled = words.integer();
  return fp8lab_accumulation(model.c_str(), distribution.c_str(), k, interval, scaled,
                             words.seed());
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(line) << '\n';
}
