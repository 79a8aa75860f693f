#pragma once
// How result files describe the columns of a table.

#include <nlohmann/json.hpp>
#include <vector>

#include "lab/experiment/table.hpp"

namespace fp8lab {

/// `[{name, unit, description}]`.
inline nlohmann::ordered_json columns_json(const std::vector<Column>& columns) {
  auto list = nlohmann::ordered_json::array();
  for (const Column& column : columns)
    list.push_back(
        {{"name", column.name}, {"unit", column.unit}, {"description", column.description}});
  return list;
}

}  // namespace fp8lab
