#include "audit/readers/rollout/columns.h"

#include <algorithm>

namespace plumbline::audit {
namespace {

using Column = RolloutColumn;

constexpr RolloutColumnInfo kInfos[] = {
    {"run", ColumnKind::kName},
    {"step", ColumnKind::kInteger},
    {"sequence_id", ColumnKind::kName},
    {"tokens", ColumnKind::kIntegers},
    {"loss_mask", ColumnKind::kFlags, true},
    {"rollout_logprobs", ColumnKind::kNumbers},
    {"train_logprobs", ColumnKind::kNumbers},
    {"behaviour_logprobs", ColumnKind::kNumbers},
    {"entropy", ColumnKind::kNumbers},
    {"varentropy", ColumnKind::kNumbers},
    {"rollout_entropy", ColumnKind::kNumbers},
    {"rollout_varentropy", ColumnKind::kNumbers},
    {"weight_versions", ColumnKind::kIntegers, true},
    {"train_version", ColumnKind::kInteger},
    {"advantages", ColumnKind::kNumbers, true},
    {"temperature", ColumnKind::kNumber},
    {"top_p", ColumnKind::kNumber},
    {"top_k", ColumnKind::kInteger},
    {"logprob_mode", ColumnKind::kText},
    {"worker", ColumnKind::kName},
    {"selection", ColumnKind::kText},
    {"kept_share", ColumnKind::kNumber},
    {"rollout_source", ColumnKind::kText},
    {"rescore_k2", ColumnKind::kNumber},
    {"t_start", ColumnKind::kNumber},
    {"t_end", ColumnKind::kNumber},
    {"turn", ColumnKind::kIntegers, true},
    {"position", ColumnKind::kIntegers},
    {"cached_tokens", ColumnKind::kInteger},
    {"length", ColumnKind::kInteger},
    {"rollout_routing", ColumnKind::kRouting},
    {"train_routing", ColumnKind::kRouting},
};
static_assert(std::size(kInfos) == kRolloutColumns);

// Adds a foreign column by its key.
void Add(ColumnMap& map, Column column, const char* name) {
  ColumnSource source;
  source.column = column;
  source.more = map.Find(column) != nullptr;
  source.path = {name};
  map.columns.push_back(std::move(source));
}

ColumnMap MakeNative() {
  ColumnMap map;
  map.format = "rollout-jsonl";
  map.needs_all = true;
  map.refuse_misspelt = true;
  for (size_t i = 0; i < kRolloutColumns; ++i) {
    const auto column = static_cast<Column>(i);
    if (column != Column::kLength) Add(map, column, kInfos[i].name);
  }
  return map;
}

// Returns the map of token_exports/step_N/rank_R.jsonl of prime-rl's trainer, schema 1. The two
// log-probabilities at index i belong to the token at index i.
ColumnMap MakePrimeRl() {
  ColumnMap map;
  map.format = "prime-rl";
  Add(map, Column::kRun, "run_id");
  Add(map, Column::kStep, "export_step");
  Add(map, Column::kStep, "step");  // the only name of the step since August 2026
  Add(map, Column::kTokens, "token_ids");
  Add(map, Column::kPosition, "position_ids");
  Add(map, Column::kLossMask, "loss_mask");
  Add(map, Column::kAdvantages, "advantages");
  Add(map, Column::kRolloutLogprobs, "inference_logprobs");
  Add(map, Column::kTrainLogprobs, "trainer_logprobs");
  Add(map, Column::kEntropy, "entropy");
  return map;
}

// Returns the map of train_data_stepN.jsonl of NeMo-RL's logger: batches of one sequence, padded to
// the longest sequence of the step. Entry 0 of the log-probabilities is a placeholder, since no
// token predicts the first.
ColumnMap MakeNemoRl() {
  ColumnMap map;
  map.format = "nemo-rl";
  map.lists_of_one = true;
  map.step_from_name = true;
  map.drop_first = 1;
  map.zeros_are_none = true;  // with skip_prev_logprobs, the logger writes zeros
  Add(map, Column::kTokens, "token_ids");
  Add(map, Column::kLossMask, "token_loss_mask");
  Add(map, Column::kLength, "input_lengths");
  Add(map, Column::kAdvantages, "advantages");
  Add(map, Column::kRolloutLogprobs, "generation_logprobs");
  Add(map, Column::kTrainLogprobs, "prev_logprobs");
  return map;
}

}  // namespace

const RolloutColumnInfo& InfoOf(RolloutColumn column) {
  return kInfos[static_cast<size_t>(column)];
}

const std::array<std::string_view, kRolloutColumns>& RolloutColumnNames() {
  static const auto kNames = [] {
    std::array<std::string_view, kRolloutColumns> names;
    std::transform(std::begin(kInfos), std::end(kInfos), names.begin(),
                   [](const RolloutColumnInfo& info) { return std::string_view(info.name); });
    return names;
  }();
  return kNames;
}

std::optional<RolloutColumn> FindRolloutColumn(std::string_view name) {
  const auto& names = RolloutColumnNames();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<RolloutColumn>(found - names.begin());
}

size_t ColumnValue::length() const {
  return std::max({numbers.size(), integers.size(), flags.size()});
}

void ColumnValue::Clear() {
  present = null = repeated = substitute = false;
  text.clear();
  numbers.clear();
  integers.clear();
  flags.clear();
  odd.clear();
  written = {};
  layers = choices = 0;
}

std::string ColumnSource::Name() const {
  std::string name;
  for (const std::string& key : path) name += (name.empty() ? "" : ".") + key;
  return name;
}

const ColumnSource* ColumnMap::Find(RolloutColumn column) const {
  const auto found = std::find_if(columns.begin(), columns.end(),
                                  [&](const ColumnSource& s) { return s.column == column; });
  return found == columns.end() ? nullptr : &*found;
}

std::string ColumnMap::NameOf(RolloutColumn column) const {
  const ColumnSource* source = Find(column);
  return source != nullptr ? source->Name() : InfoOf(column).name;
}

const ColumnMap& NativeColumns() {
  static const ColumnMap kMap = MakeNative();
  return kMap;
}
const ColumnMap& PrimeRlColumns() {
  static const ColumnMap kMap = MakePrimeRl();
  return kMap;
}
const ColumnMap& NemoRlColumns() {
  static const ColumnMap kMap = MakeNemoRl();
  return kMap;
}

}  // namespace plumbline::audit
