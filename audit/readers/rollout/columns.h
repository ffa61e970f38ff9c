// The columns of a rollout record, with our names and their places in a foreign format.
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

// docs/rollout_records.md defines each column. A list has one element per token of a sequence.
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
  kLength,  // number of tokens without padding; the rest of every list is dropped
  kRolloutRouting,
  kTrainRouting,
};
inline constexpr size_t kRolloutColumns = static_cast<size_t>(RolloutColumn::kTrainRouting) + 1;

enum class ColumnKind : uint8_t {
  kName,      // a string, or an integer that is used as one
  kText,      // a string
  kInteger,   // an integer
  kNumber,    // a finite number
  kIntegers,  // a list, like all kinds below
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
// Returns every name, in the order of the enumeration. Static storage.
const std::array<std::string_view, kRolloutColumns>& RolloutColumnNames();

// One column of a record. The column's kind determines which members are set.
struct ColumnValue {
  bool present = false;
  bool null = false;        // the record has null for it
  bool repeated = false;    // one value for all tokens
  bool substitute = false;  // from a source that is read only if the first one is absent
  size_t offset = 0;        // byte of the value in its line
  std::string text;
  int64_t integer = 0;
  double number = 0;
  std::vector<double> numbers;
  std::vector<int64_t> integers;  // for routing: [rows, layers, choices], -1 if absent
  std::vector<uint8_t> flags;     // for routing: which rows are present
  std::vector<OddElement> odd;
  NumberText written;
  int64_t layers = 0, choices = 0;

  size_t length() const;  // Returns the length of the list.
  void Clear();           // Clears the value, but keeps its capacity.
};

using RolloutColumns = std::array<ColumnValue, kRolloutColumns>;
inline ColumnValue& At(RolloutColumns& columns, RolloutColumn column) {
  return columns[static_cast<size_t>(column)];
}
inline const ColumnValue& At(const RolloutColumns& columns, RolloutColumn column) {
  return columns[static_cast<size_t>(column)];
}

// The place of one of our columns in a foreign format.
struct ColumnSource {
  RolloutColumn column = RolloutColumn::kStep;
  std::vector<std::string> path;  // keys from the outermost object inwards
  double scale = 1;               // our value = scale * value in the file; for numbers only
  // The list has one value for each call that generated a part of the sequence.
  bool of_calls = false;
  bool align_end = false;  // if the list is longer than the others, its last entries are
                           // used
  // True if the source is not the first of its column. Masks are multiplied; for other columns, the
  // first source that the record has is used.
  bool more = false;

  std::string Name() const;  // returns "a.b"
};

// A format of rollout records. Immutable after reading.
struct ColumnMap {
  std::string format;  // its name in reports
  std::vector<ColumnSource> columns;
  RolloutColumns constants;  // values for columns that a record lacks
  // A record is one token; consecutive records with equal ids are a sequence.
  bool token_records = false;
  bool lists_of_one = false;     // values may be wrapped in lists of one element (batches of one)
  bool step_from_name = false;   // if no column has the step: the last integer in the file's name
  bool needs_all = false;        // tokens, loss_mask and sequence_id are required, as in our own
                                 // format
  bool refuse_misspelt = false;  // refuse a key that is nearly a column's name
  bool zeros_are_none = false;   // if all train_logprobs are zero, they were not computed
  int64_t drop_first = 0;        // entries dropped at the beginning of every list

  const ColumnSource* Find(RolloutColumn column) const;
  // Returns the column's name in the foreign format. If it has none, returns ours.
  std::string NameOf(RolloutColumn column) const;
};

// Return built-in maps. All have static storage.
const ColumnMap& NativeColumns();
const ColumnMap& PrimeRlColumns();
const ColumnMap& NemoRlColumns();

}  // namespace plumbline::audit
