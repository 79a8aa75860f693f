#include "fp8lab/core/toml_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

/// Follows keys, brackets and strings through a text as a parser does. Where the two part, the
/// parser has found an error and goes no further.
class DepthScan {
 public:
  DepthScan(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  void run() {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
    while (at_ < text_.size()) step();
  }

 private:
  struct Level {
    int depth;
    bool in_value;
  };

  void step() {
    const char c = text_[at_];
    if (c == '"' || c == '\'') return skip_string(c);
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
      return;
    }
    ++at_;
    if (c == '\n') {
      if (open_.empty()) begin_line();
    } else if (c == '[' || c == '{') {
      begin_bracket(c);
    } else if (c == ']' || c == '}') {
      end_bracket();
    } else if (c == ',') {
      if (!open_.empty()) now_ = open_.back();
    } else if (c == '=') {
      now_.in_value = true;
      if (open_.empty()) line_is_empty_ = false;
    } else if (c == '.' && !now_.in_value) {
      go_down();
    }
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r' && c != '[') line_is_empty_ = false;
  }

  void begin_line() {
    if (in_header_) header_ = now_.depth;
    in_header_ = false;
    now_ = {header_ + 1, false};  // the first part of a key
    line_is_empty_ = true;
  }

  void begin_bracket(char c) {
    if (c == '[' && open_.empty() && line_is_empty_) {
      if (!in_header_) now_ = {0, false};
      in_header_ = true;
      return go_down();
    }
    go_down();
    now_.in_value = c == '[';
    open_.push_back(now_);
  }

  void end_bracket() {
    if (open_.empty()) return;
    open_.pop_back();
    now_ = {open_.empty() ? header_ + 1 : open_.back().depth, true};
  }

  void go_down() {
    if (++now_.depth > kMostTomlDepth)
      throw Error(
          fmt::format("{}: nested too deeply: at most {} parts of a key, tables and lists "
                      "in each other",
                      where_, kMostTomlDepth));
  }

  void skip_string(char quote) {
    line_is_empty_ = false;
    const std::string three(3, quote);
    const bool is_long = text_.substr(at_).starts_with(three);
    const std::string_view end = is_long ? std::string_view(three) : text_.substr(at_, 1);
    for (at_ += end.size(); at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n' && !is_long) return;
      if (text_.substr(at_).starts_with(end)) {
        at_ += end.size();
        return;
      }
      if (text_[at_] == '\\' && quote == '"') ++at_;
    }
  }

  std::string_view text_;
  std::string_view where_;
  std::size_t at_ = 0;
  std::vector<Level> open_;  ///< of brackets, what each member begins with
  Level now_{1, false};
  int header_ = 0;  ///< depth of the table that lines belong to
  bool in_header_ = false;
  bool line_is_empty_ = true;
};

}  // namespace

void require_toml_depth(std::string_view text, std::string_view where) {
  DepthScan(text, where).run();
}

toml::table parse_toml(std::string_view text, std::string_view where) {
  require_toml_depth(text, where);
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw Error(fmt::format("{}:{}:{}: {}", where, error.source().begin.line,
                            error.source().begin.column, error.description()));
  }
}

}  // namespace fp8lab
