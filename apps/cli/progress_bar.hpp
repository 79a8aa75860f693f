#pragma once
// How far a long command is: a bar on a terminal's stderr, nothing elsewhere.

#include <string>
#include <string_view>

namespace fp8lab::cli {

class ProgressBar {
 public:
  /// `speaks` false: says nothing (one process of several that speaks is enough).
  explicit ProgressBar(std::string_view name, bool speaks = true);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `note` stands behind the percentage (a rate, the time left).
  void show(double fraction, std::string_view note = {});

 private:
  std::string name_;
  std::string shown_;
  bool terminal_;
};

}  // namespace fp8lab::cli
