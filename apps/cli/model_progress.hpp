#pragma once
// How far the rewriting of a model is, and what it left.

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "progress_bar.hpp"
#include "training/model_files/rewrite.hpp"

namespace fp8lab::cli {

/// A bar on a terminal; a line for each shard elsewhere.
class ModelProgress {
 public:
  explicit ModelProgress(std::string_view name) : bar_(name) {}

  /// Valid as long as the object.
  std::function<void(const RewriteProgress&)> callback();

 private:
  void show(const RewriteProgress& progress);

  ProgressBar bar_;
  std::string shard_;
};

void print_summary(const RewriteSummary& summary);
nlohmann::ordered_json to_json(const RewriteSummary& summary);

}  // namespace fp8lab::cli
