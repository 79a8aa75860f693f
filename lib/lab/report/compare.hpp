#pragma once
// Two runs of one experiment, value by value.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lab/report/input.hpp"

namespace fp8lab {

/// A value that both runs may have; nothing where one has not.
struct ComparedText {
  std::string name;  ///< of a parameter or fact; empty for a finding
  std::optional<std::string> a;
  std::optional<std::string> b;
  [[nodiscard]] bool differs() const { return a != b; }
};

/// Rows of two tables that are of the same thing; null where one has none.
struct JoinedRow {
  const std::vector<std::string>* a = nullptr;
  const std::vector<std::string>* b = nullptr;
  bool differs = false;
};

/// A column that both tables have, by its index in each.
struct JoinedColumn {
  std::size_t a = 0;
  std::size_t b = 0;
  bool key = false;
  bool numeric = false;
  std::size_t differing = 0;  ///< rows of both tables whose cells differ
};

struct TableComparison {
  const StoredTable* a = nullptr;  ///< null where only the other has it
  const StoredTable* b = nullptr;
  bool same_bytes = false;
  bool by_position = false;  ///< rows are joined by their order: no keys tell them apart
  std::vector<JoinedColumn> columns;
  std::vector<JoinedRow> rows;
  std::string counts;                ///< how many rows differ; empty for the same bytes
  std::vector<std::string> changes;  ///< a sentence a column that differs, spreads left out
};

struct RunComparison {
  const StoredRun* a = nullptr;
  const StoredRun* b = nullptr;
  std::vector<ComparedText> parameters;  ///< with the seed, and a sweep's axes
  std::vector<ComparedText> facts;       ///< version and machine
  std::vector<ComparedText> findings;    ///< of the same wording but for the numbers side by side
  std::vector<TableComparison> tables;
  std::vector<std::string> words;  ///< the summary
};

/// Compares runs of the same experiment, which must outlive the result.
RunComparison compare_runs(const StoredRun& a, const StoredRun& b);

/// B - A and B / A of two cells; NaN where they are no numbers.
double difference_of(const std::string& a, const std::string& b);
double ratio_of(const std::string& a, const std::string& b);

}  // namespace fp8lab
