// Interprets names that trainers of boosted trees log, and that other trainers use without a prefix
// or with other meanings.
#pragma once

#include <optional>
#include <string_view>

#include "analysis/role/role.h"

namespace plumbline {

// Returns the role of a metric of XGBoost (`train-rmse`), LightGBM (`valid_0's l2`) or CatBoost
// (`RMSE`, `test/RMSE`), or of the same error metric alone. If the name has another form, returns
// nullopt. Metrics that grow as a model improves have no role. A share of errors is judged only for
// NaN, because it may be exactly 0 in healthy runs.
std::optional<SeriesRole> BoosterRole(std::string_view name);

}  // namespace plumbline
