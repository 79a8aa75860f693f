#include "fp8lab/core/json_keys.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"

namespace fp8lab {
namespace {

using nlohmann::json;

/// A pass of its own: the library's parser with a callback looks through all earlier keys at the
/// end of every object.
class KeyCheck final : public json::json_sax_t {
 public:
  KeyCheck(const std::string& where, int most_depth) : where_(where), most_depth_(most_depth) {}

  bool start_object(std::size_t) override {
    go_down();
    keys_.emplace_back();
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    go_down();
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second)
      throw Error(fmt::format("{}: the key '{}' appears twice", where_, key.substr(0, 80)));
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    fault_ = json_reason(error);
    return false;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

  [[nodiscard]] const std::string& fault() const { return fault_; }

 private:
  void go_down() {
    if (++depth_ > most_depth_)
      throw Error(fmt::format("{}: nested too deeply: at most {} objects and lists in each other",
                              where_, most_depth_));
  }

  const std::string& where_;
  int most_depth_;
  std::vector<std::unordered_set<std::string>> keys_;
  int depth_ = 0;
  std::string fault_;
};

}  // namespace

std::string json_fault(std::string_view text, const std::string& where, int most_depth) {
  KeyCheck check(where, most_depth);
  json::sax_parse(text.begin(), text.end(), &check);
  return check.fault();
}

void require_unique_keys(std::string_view text, const std::string& where, int most_depth) {
  if (const std::string fault = json_fault(text, where, most_depth); !fault.empty())
    throw Error(fmt::format("{}: not JSON: {}", where, fault));
}

}  // namespace fp8lab
