#include "training/model_files/exact_json.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include "fp8lab/core/json_text.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

/// Builds the value of a text that has been checked.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& digits) override {
    if (digits.find_first_of(".eE") != std::string::npos) return add(value);
    return add(Json::binary(std::vector<std::uint8_t>(digits.begin(), digits.end())));
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(Json::binary(std::move(value))); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;  // checked before
  }

 private:
  bool add(Json value) {
    (void)put(std::move(value));
    return true;
  }
  Json* put(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }
  /// A container does not grow while one inside it is open, so the places stay.
  bool open(Json value) {
    open_.push_back(put(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;
  std::string key_;
};

void write(const Json& value, std::size_t indent, std::size_t depth, std::string& out) {
  if (value.is_binary()) {
    out.append(value.get_binary().begin(), value.get_binary().end());
    return;
  }
  if (!value.is_structured() || value.empty()) {
    out += json_text(value);
    return;
  }
  out += value.is_object() ? '{' : '[';
  const char* separator = "\n";
  for (const auto& [key, element] : value.items()) {
    out += separator;
    out.append(indent * (depth + 1), ' ');
    if (value.is_object()) out += json_text(Json(key)) + ": ";
    write(element, indent, depth + 1, out);
    separator = ",\n";
  }
  out += '\n';
  out.append(indent * depth, ' ');
  out += value.is_object() ? '}' : ']';
}

}  // namespace

Json parse_exact_json(std::string_view text, const std::string& where) {
  require_unique_keys(text, where, kMostJsonDepth);
  Builder builder;
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

std::string exact_json(const Json& value, int indent) {
  std::string out;
  write(value, static_cast<std::size_t>(indent), 0, out);
  return out;
}

}  // namespace fp8lab
