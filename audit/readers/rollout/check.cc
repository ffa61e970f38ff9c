// Implements CheckRecord: checks that a record's columns fit together and have possible values.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "audit/readers/rollout/sequence.h"
#include "audit/readers/rollout/words.h"
#include "base/router/rule.h"

namespace plumbline::audit {
namespace {

using Column = RolloutColumn;

class Checker {
 public:
  Checker(const ColumnMap& map, std::string_view line, const RolloutColumns& columns,
          SequenceShape* shape, LineProblem* problem)
      : map_(map), line_(line), columns_(columns), shape_(shape), problem_(problem) {}

  bool Check() {
    return Required() && Words() && Ranges() && Extent() && Lengths() && Mask() && Integers() &&
           Logprobs() && Routing(Column::kRolloutRouting) && Routing(Column::kTrainRouting);
  }

 private:
  const ColumnValue& Of(Column column) const { return At(columns_, column); }
  bool Has(Column column) const { return Of(column).present; }

  bool Wrong(size_t offset, std::string expected) {
    *problem_ = {offset, std::move(expected), FoundAt(line_, offset), false};
    return false;
  }
  bool WrongColumn(Column column, const std::string& expected) {
    return Wrong(Of(column).offset, expected + " for " + map_.NameOf(column));
  }
  bool WrongElement(Column column, size_t index, const std::string& expected) {
    const ColumnValue& value = Of(column);
    const auto odd = std::find_if(value.odd.begin(), value.odd.end(),
                                  [&](const OddElement& o) { return o.index == index; });
    const size_t offset = odd != value.odd.end() ? odd->offset
                          : value.repeated       ? value.offset
                                                 : OffsetOfElement(line_, value.offset, index);
    const std::string place = value.repeated ? "" : "[" + std::to_string(index) + "]";
    return Wrong(offset, expected + " at " + map_.NameOf(column) + place);
  }
  bool Missing(const std::string& expected, bool no_values = false) {
    *problem_ = {0, expected, "none", false, no_values};
    return false;
  }

  bool Required() {
    if (!Has(Column::kStep)) return Missing("a column " + map_.NameOf(Column::kStep));
    if (Of(Column::kStep).integer < 0) return WrongColumn(Column::kStep, "at least 0");
    for (const Column column : {Column::kSequenceId, Column::kTokens, Column::kLossMask}) {
      if (map_.needs_all && !Has(column)) return Missing("a column " + map_.NameOf(column));
    }
    for (const Column column : {Column::kRolloutLogprobs, Column::kTrainLogprobs,
                                Column::kRolloutRouting, Column::kTrainRouting}) {
      if (Has(column)) return true;
      problem_->no_values |= Of(column).null;
    }
    const bool null = problem_->no_values && !map_.needs_all;
    return Missing("a column " + map_.NameOf(Column::kRolloutLogprobs) + " or " +
                       map_.NameOf(Column::kTrainLogprobs),
                   null);
  }

  bool Words() {
    const auto check = [&](Column column, std::span<const RolloutWord> words) {
      if (!Has(column) || FindWord(words, Of(column).text) != nullptr) return true;
      return WrongColumn(column, std::string(words[0].text) + " or " + std::string(words[1].text));
    };
    return check(Column::kLogprobMode, kLogprobModes) && check(Column::kSelection, kSelections) &&
           check(Column::kRolloutSource, kRolloutSources);
  }

  bool Ranges() {
    const auto check = [&](Column column, double low, double high, const char* expected) {
      const double x = Of(column).number;
      return !Has(column) || (x >= low && x <= high) || WrongColumn(column, expected);
    };
    constexpr double kLeast = std::numeric_limits<double>::denorm_min(), kMost = 1e300;
    return check(Column::kKeptShare, kLeast, 1, "a share above 0 and at most 1") &&
           check(Column::kTopP, kLeast, 1, "a share above 0 and at most 1") &&
           check(Column::kTemperature, 0, kMost, "a temperature of at least 0") &&
           check(Column::kRescoreK2, 0, kMost, "a mean square of at least 0");
  }

  // Sets the number of tokens, from the first list that is aligned at its beginning.
  bool Extent() {
    constexpr Column kMeasures[] = {Column::kTokens, Column::kRolloutLogprobs,
                                    Column::kTrainLogprobs, Column::kRolloutRouting,
                                    Column::kTrainRouting};
    std::optional<Column> measure;
    for (const Column column : kMeasures) {
      const ColumnSource* source = map_.Find(column);
      if (!Has(column) || (source != nullptr && source->align_end)) continue;
      if (!measure) measure = column;
    }
    if (!measure) return Missing("a list of tokens or log-probabilities that is not aligned");
    measure_ = *measure;
    entries_ = Entries(measure_);
    return true;
  }

  bool Lengths() {
    for (size_t i = 0; i < kRolloutColumns; ++i) {
      const auto column = static_cast<Column>(i);
      if (!Has(column) || !IsList(InfoOf(column).kind) || Of(column).repeated) continue;
      const size_t length = Entries(column);
      const ColumnSource* source = map_.Find(column);
      const bool ends = source != nullptr && source->align_end;
      if (length == entries_ || (ends && length > entries_)) {
        shape_->begin[i] = length - entries_;
        continue;
      }
      *problem_ = {Of(column).offset,
                   std::to_string(entries_) + " entries of " + map_.NameOf(column) +
                       ", as many as in " + map_.NameOf(measure_),
                   std::to_string(length), false};
      return false;
    }
    return Cut();
  }

  size_t Entries(Column column) const {
    const ColumnValue& value = Of(column);
    return InfoOf(column).kind == ColumnKind::kRouting ? value.flags.size() : value.length();
  }

  // Removes padding at the end and placeholders at the beginning.
  bool Cut() {
    size_t tokens = entries_;
    if (Has(Column::kLength)) {
      const int64_t length = Of(Column::kLength).integer;
      if (length < 0 || static_cast<uint64_t>(length) > entries_)
        return WrongColumn(Column::kLength, "a length of 0 to " + std::to_string(entries_));
      tokens = static_cast<size_t>(length);
    }
    const size_t drop = std::min(static_cast<size_t>(map_.drop_first), tokens);
    shape_->tokens = tokens - drop;
    shape_->first_position = static_cast<int64_t>(drop);
    for (size_t i = 0; i < kRolloutColumns; ++i) {
      if (!columns_[i].repeated) shape_->begin[i] += drop;
    }
    return true;
  }

  size_t Index(Column column, size_t token) const {
    return Of(column).repeated ? 0 : shape_->begin[static_cast<size_t>(column)] + token;
  }
  bool Judged(size_t token) const {
    return !Has(Column::kLossMask) ||
           Of(Column::kLossMask).flags[Index(Column::kLossMask, token)] != 0;
  }
  // Returns the token to which an element of a list belongs. If it belongs to none, returns
  // nullopt.
  std::optional<size_t> TokenOf(Column column, size_t index) const {
    if (Of(column).repeated) return 0;
    const size_t begin = shape_->begin[static_cast<size_t>(column)];
    if (index < begin || index - begin >= shape_->tokens) return std::nullopt;
    return index - begin;
  }

  bool Mask() {
    for (const OddElement& odd : Of(Column::kLossMask).odd) {
      if (TokenOf(Column::kLossMask, odd.index))
        return WrongElement(Column::kLossMask, odd.index, "0 or 1");
    }
    return true;
  }

  bool Integers() {
    for (const Column column : {Column::kTokens, Column::kTurn, Column::kPosition}) {
      for (const OddElement& odd : Of(column).odd) {
        const std::optional<size_t> token = TokenOf(column, odd.index);
        if (token && (column == Column::kPosition || Judged(*token)))
          return WrongElement(column, odd.index, "a whole number");
      }
    }
    return true;
  }

  // Returns true for null, which JSON writers use for non-finite numbers, and for NaN from the
  // engine, which uses it for an absent value.
  bool IsNull(Column column, size_t index) const {
    const std::vector<OddElement>& odd = Of(column).odd;
    const auto found =
        std::find_if(odd.begin(), odd.end(), [&](const OddElement& e) { return e.index == index; });
    if (found == odd.end()) return false;
    const std::string_view text = line_.substr(found->offset);
    const bool engine = column == Column::kRolloutLogprobs;
    return text.starts_with("null") ||
           (engine && (text.starts_with("NaN") || text.starts_with("nan")));
  }

  bool Logprobs() {
    for (const Column column :
         {Column::kRolloutLogprobs, Column::kTrainLogprobs, Column::kBehaviourLogprobs}) {
      const std::vector<double>& values = Of(column).numbers;
      for (size_t token = 0; Has(column) && token < shape_->tokens; ++token) {
        const size_t index = Index(column, token);
        const double x = values[index];
        if (x <= kMostLogprob && x >= -std::numeric_limits<double>::max()) continue;
        if (Judged(token) && !IsNull(column, index))
          return WrongElement(column, index, "a finite log-probability of at most 0");
      }
    }
    return true;
  }

  // Checks the routing. The last token is sampled but not processed, so it may have no experts.
  bool Routing(Column column) {
    const ColumnValue& value = Of(column);
    for (const OddElement& odd : value.odd) {
      const std::optional<size_t> token = TokenOf(column, odd.index);
      if (token && *token + 1 != shape_->tokens)
        return WrongElement(column, odd.index, "a list of layers");
    }
    const auto bad = std::find_if(value.integers.begin(), value.integers.end(),
                                  [](int64_t e) { return e < -1 || e >= kMaxExperts; });
    if (bad == value.integers.end()) return true;
    return WrongColumn(column, "expert ids of -1 to " + std::to_string(kMaxExperts - 1));
  }

  const ColumnMap& map_;
  std::string_view line_;
  const RolloutColumns& columns_;
  SequenceShape* shape_;
  LineProblem* problem_;
  Column measure_ = Column::kTokens;
  size_t entries_ = 0;
};

// Of the rows from `first` on, marks those for which `keep` returns false as absent.
template <typename Keep>
void KeepRows(size_t first, const Keep& keep, ColumnValue* routing) {
  const auto width = static_cast<std::ptrdiff_t>(routing->layers * routing->choices);
  const auto begin = routing->flags.begin();
  auto row = routing->integers.begin() +
             width * std::count(begin, begin + static_cast<std::ptrdiff_t>(first), 1);
  auto to = row;
  for (size_t i = first; i < routing->flags.size(); ++i) {
    if (routing->flags[i] == 0) continue;
    routing->flags[i] = keep(i, row) ? 1 : 0;
    if (routing->flags[i] != 0) to = to == row ? row + width : std::copy(row, row + width, to);
    row += width;
  }
  routing->integers.erase(to, routing->integers.end());
}

// Marks filler rows of routing as absent. The last token is sampled but not processed, so engines
// write T - 1 rows for T tokens, or rows of zeros for it and for the padding after it. A row of
// only zeros is no choice of several experts. If one side leaves out rows of padding, they count on
// neither side.
void DropFillers(RolloutColumns* columns) {
  ColumnValue* const sides[] = {&At(*columns, Column::kRolloutRouting),
                                &At(*columns, Column::kTrainRouting)};
  const ColumnValue& ids = At(*columns, Column::kTokens);
  const ColumnValue& tokens = ids.present ? ids : At(*columns, Column::kRolloutLogprobs);
  const ColumnValue& mask = At(*columns, Column::kLossMask);
  size_t after = 0;  // the first row after the last judged token
  for (ColumnValue* side : sides) {
    if (!side->present || side->flags.empty()) continue;
    if (side->flags.size() + 1 == tokens.length()) side->flags.push_back(0);
    after = side->flags.size();
    while (mask.flags.size() == side->flags.size() && after > 1 && mask.flags[after - 1] == 0)
      --after;
    if (side->choices < 2) continue;
    const auto width = static_cast<std::ptrdiff_t>(side->layers * side->choices);
    const auto chosen = [&](size_t /*row*/, auto row) {
      return std::any_of(row, row + width, [](int64_t expert) { return expert != 0; });
    };
    KeepRows(after - 1, chosen, side);
  }
  if (sides[0]->flags.size() != sides[1]->flags.size()) return;
  for (const int i : {0, 1}) {
    const auto both = [&](size_t row, auto /*experts*/) { return sides[1 - i]->flags[row] != 0; };
    KeepRows(after, both, sides[i]);
  }
}

}  // namespace

bool CheckRecord(const ColumnMap& map, std::string_view line, RolloutColumns* columns,
                 SequenceShape* shape, LineProblem* problem) {
  *shape = {};
  for (size_t i = 0; i < kRolloutColumns; ++i) {
    if (!(*columns)[i].present && map.constants[i].present) (*columns)[i] = map.constants[i];
  }
  ColumnValue& train = At(*columns, Column::kTrainLogprobs);
  const bool zeros = std::all_of(train.numbers.begin(), train.numbers.end(),
                                 [](double value) { return value == 0; });
  if (map.zeros_are_none && zeros && HasRollout(*columns)) train.Clear();
  DropFillers(columns);
  return Checker(map, line, *columns, shape, problem).Check();
}

}  // namespace plumbline::audit
