// Names of what boosted trees log, which other trainers use alone or with other meanings.
#pragma once

#include <optional>
#include <string_view>

#include "analysis/role/role.h"

namespace plumbline {

// The role of a metric of XGBoost (`train-rmse`), LightGBM (`valid_0's l2`) or CatBoost (`RMSE`,
// `test/RMSE`), or of the same error metric that stands alone; nothing: the name is of another
// form. Metrics that grow as a model gets better have no role, a share of errors is judged for NaN
// alone: it is exactly 0 in healthy runs.
std::optional<SeriesRole> BoosterRole(std::string_view name);

}  // namespace plumbline
