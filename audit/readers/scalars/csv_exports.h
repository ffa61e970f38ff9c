// Tables that W&B and TensorBoard export: what their columns are called.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

// W&B names the columns of an export "RUN - SERIES", with two that give the range within a bin.
bool IsRange(std::string_view name);
// The one run whose name all columns but the step begin with; empty: no export of one run.
std::string ExportedRun(const std::vector<std::string_view>& columns, std::string_view step);

// "run-train-tag-loss_total.csv" -> "loss_total": how TensorBoard names its exports.
std::string_view TagOf(std::string_view path);

}  // namespace plumbline::audit
