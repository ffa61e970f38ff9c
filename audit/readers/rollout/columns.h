// The columns of a rollout record by our own names, and where a foreign format keeps them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/input/json_cursor.h"

namespace plumbline::audit {

// docs/rollout_records.md says what each holds. Lists run over the tokens of a sequence.
enum class RolloutColumn : uint8_t {
  kRun,
  kStep,
  kSequenceId,
  kTokens,
  kLossMask,
  kRolloutLogprobs,
  kTrainLogprobs,
  kBehaviourLogprobs,
  kEntropy,
  kVarentropy,
  kRolloutEntropy,
  kRolloutVarentropy,
  kWeightVersions,
  kTrainVersion,
  kAdvantages,
  kTemperature,
  kTopP,
  kTopK,
  kLogprobMode,
  kWorker,
  kSelection,
  kKeptShare,
  kRolloutSource,
  kRescoreK2,
  kTStart,
  kTEnd,
  kTurn,
  kPosition,
  kCachedTokens,
  kLength,  // tokens that are no padding; the rest of every list is dropped
  kRolloutRouting,
  kTrainRouting,
};
inline constexpr size_t kRolloutColumns = static_cast<size_t>(RolloutColumn::kTrainRouting) + 1;

enum class ColumnKind : uint8_t {
  kName,      // a string, or a whole number that is taken as one
  kText,      // a string
  kInteger,   // a whole number
  kNumber,    // a finite number
  kIntegers,  // a list, as are those below
  kFlags,
  kNumbers,
  kRouting,  // per token, per layer, k expert ids
};

struct RolloutColumnInfo {
  const char* name;
  ColumnKind kind;
  bool repeats = false;  // a list that may be given as one value for all tokens
};

const RolloutColumnInfo& InfoOf(RolloutColumn column);
inline bool IsList(ColumnKind kind) { return kind >= ColumnKind::kIntegers; }
std::optional<RolloutColumn> FindRolloutColumn(std::string_view name);
// Every name, in the enumeration's order. Static storage.
const std::array<std::string_view, kRolloutColumns>& RolloutColumnNames();

// One column of a record, as read. Which members are filled depends on the column's kind.
struct ColumnValue {
  bool present = false;
  bool repeated = false;  // one value for all tokens
  size_t offset = 0;      // byte of the value in its line
  std::string text;
  int64_t integer = 0;
  double number = 0;
  std::vector<double> numbers;
  std::vector<int64_t> integers;  // of routing: [rows, layers, choices], -1 where there is none
  std::vector<uint8_t> flags;     // of routing: which rows are there
  std::vector<OddElement> odd;
  NumberText written;
  int64_t layers = 0, choices = 0;

  size_t length() const;  // of the list
  void Clear();           // keeps the capacity
};

using RolloutColumns = std::array<ColumnValue, kRolloutColumns>;
inline ColumnValue& At(RolloutColumns& columns, RolloutColumn column) {
  return columns[static_cast<size_t>(column)];
}
inline const ColumnValue& At(const RolloutColumns& columns, RolloutColumn column) {
  return columns[static_cast<size_t>(column)];
}

// Where a foreign format keeps one of our columns.
struct ColumnSource {
  RolloutColumn column = RolloutColumn::kStep;
  std::vector<std::string> path;  // keys from the outermost object inwards
  double scale = 1;               // ours = scale * theirs; of numbers only
  bool align_end = false;         // a longer list than the others': its last entries are meant

  std::string Name() const;  // "a.b"
};

// A format of rollout records. Immutable once read.
struct ColumnMap {
  std::string format;  // as reports name it
  std::vector<ColumnSource> columns;
  RolloutColumns constants;     // for what a record does not say
  bool token_records = false;   // one record a token; sequences are runs of equal ids
  bool lists_of_one = false;    // a value may be wrapped in lists of one element (batches of one)
  bool step_from_name = false;  // the last whole number in the file's name, where no column says it
  bool needs_all = false;       // tokens, loss_mask and sequence_id must be there, as natively
  bool refuse_misspelt = false;  // a key that is nearly a column's name
  int64_t drop_first = 0;        // entries left off at the beginning of every list

  const ColumnSource* Find(RolloutColumn column) const;
  // The column's name in the foreign format, ours where it has none.
  std::string NameOf(RolloutColumn column) const;
};

// Static storage.
const ColumnMap& NativeColumns();
const ColumnMap& PrimeRlColumns();
const ColumnMap& NemoRlColumns();

}  // namespace plumbline::audit
