#include "audit/readers/log_text/log_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

#include "audit/readers/log_text/drawn_rules.h"
#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_name.h"

namespace plumbline::audit {
namespace {

constexpr Bytes kTableEdges(" \t|");

// Splits at pipes, tabs or two spaces; if `narrow`, also at one space.
std::vector<std::string_view> CellsOf(std::string_view line, bool narrow) {
  std::vector<std::string_view> cells;
  const bool piped = line.find('|') != std::string_view::npos;
  Trim(&line, kTableEdges, kTableEdges);
  while (!line.empty()) {
    size_t end = 0;
    while (end < line.size()) {
      const char c = line[end];
      if (piped ? c == '|' : c == '\t' || (c == ' ' && (narrow || line.substr(end, 2) == "  ")))
        break;
      ++end;
    }
    std::string_view cell = line.substr(0, end);
    line.remove_prefix(std::min(line.size(), end + 1));
    if (!piped) Trim(&line, kTableEdges, kTableEdges);
    Trim(&cell, kSpaces, kSpaces);
    cells.push_back(cell);
  }
  return cells;
}

// Joins the words of a name, "Training", "Loss" -> "Training Loss", if one space separates columns.
std::vector<std::string_view> WithJoinedNames(const std::vector<std::string_view>& cells) {
  static constexpr std::string_view kFirst[] = {"Training", "Validation", "Train", "Valid",
                                                "Val",      "Test",       "Eval",  "Learning",
                                                "Average",  "Avg",        "Model", "No"};
  static constexpr std::string_view kSecond[] = {"Loss", "Accuracy", "Acc", "Rate", "log"};
  const auto is_of = [](std::string_view word, const auto& words) {
    return std::find(std::begin(words), std::end(words), word) != std::end(words);
  };
  std::vector<std::string_view> joined;
  for (size_t i = 0; i < cells.size(); ++i) {
    const bool two =
        i + 1 < cells.size() && is_of(cells[i], kFirst) && is_of(cells[i + 1], kSecond);
    const char* end = cells[two ? i + 1 : i].data() + cells[two ? i + 1 : i].size();
    joined.emplace_back(cells[i].data(), static_cast<size_t>(end - cells[i].data()));
    i += two ? 1 : 0;
  }
  return joined;
}

// Returns all cells, also empty ones at the edges.
std::vector<std::string_view> CellsBetweenPipes(std::string_view line) {
  std::vector<std::string_view> cells;
  Trim(&line, kSpaces, kSpaces);
  if (line.starts_with('|')) line.remove_prefix(1);
  if (line.ends_with('|')) line.remove_suffix(1);
  while (true) {
    const size_t pipe = line.find('|');
    std::string_view cell = line.substr(0, pipe);
    Trim(&cell, kSpaces, kSpaces);
    cells.push_back(cell);
    if (pipe == std::string_view::npos) return cells;
    line.remove_prefix(pipe + 1);
  }
}

// Returns the sum of "[2.3e+00, 1.2e-01]", the parts of a loss (DeepXDE); nullopt for anything
// else.
std::optional<double> SumOfList(std::string_view cell) {
  static constexpr Bytes kParting(" ,");
  if (cell.size() < 3 || cell.front() != '[' || cell.back() != ']') return std::nullopt;
  const char* at = cell.data() + 1;
  const char* to = cell.data() + cell.size() - 1;
  double sum = 0;
  while (at != to) {
    double value = 0;
    const char* stop = ScanNumber(at, to, &value);
    if (stop == at) return std::nullopt;
    sum += value;
    at = stop;
    while (at != to && kParting[*at]) ++at;
  }
  return sum;
}

// True for "-----", "+----+----+", "|---|---|".
bool IsRule(std::string_view line) {
  static constexpr Bytes kRule("-=+| \t:");
  Trim(&line, kSpaces, kSpaces);
  return line.size() >= 3 && line.find_first_of("-=") != std::string_view::npos &&
         std::all_of(line.begin(), line.end(), [](char c) { return kRule[c]; });
}

// Reads "3/100", "2.61G", "0.5s" or "45.3%". Returns nullopt for any other text, such as a time
// ("00:12").
std::optional<double> NumberOfCell(std::string_view cell) {
  if (const std::optional<double> number = NumberOf(cell)) return number;
  if (const std::optional<double> sum = SumOfList(cell)) return sum;
  struct Suffix {
    char letter;
    double factor;
  };
  static constexpr Suffix kSuffixes[] = {{'s', 1},   {'m', 60},  {'h', 3600}, {'%', 0.01},
                                         {'K', 1e3}, {'M', 1e6}, {'G', 1e9}};
  for (const Suffix& suffix : kSuffixes) {
    if (!cell.ends_with(suffix.letter)) continue;
    const std::optional<double> number = NumberOf(cell.substr(0, cell.size() - 1));
    return number && std::isfinite(*number) ? std::optional(*number * suffix.factor) : std::nullopt;
  }
  return std::nullopt;
}

// True for a cell that is not numeric but may be in a row of numbers.
bool IsFiller(std::string_view cell) {
  if (cell.empty() || cell == "[]" || cell == "-" || cell == "--" || cell == "None" ||
      cell == "+" || cell == "unknown" || cell == "No log")
    return true;
  return cell.size() <= 12 && std::all_of(cell.begin(), cell.end(), [](char c) {
           return IsPairDigit(c) || c == ':' || c == '.' || c == 's' || c == 'm' || c == 'h';
         });
}

std::optional<int64_t> StepCell(std::string_view cell) { return CountIn(cell); }

bool HasSignOfValue(std::string_view cell) {
  return cell.substr(0, cell.find(" (")).find_first_of(":=,") != std::string_view::npos;
}

bool MayNameColumn(std::string_view name) {
  return !name.empty() && name.size() <= 48 && (IsPairLetter(name[0]) || name == "#") &&
         !HasSignOfValue(name);
}

bool TrainsIn(const std::vector<LogRow::Value>& values) {
  return std::any_of(values.begin(), values.end(),
                     [](const LogRow::Value& v) { return HasTrainingWord(v.name); });
}

// True for the seconds of a step: "timeperf/train_step", "timing_s/step".
bool IsTimeOfStep(std::string_view name) {
  const size_t slash = name.rfind('/');
  if (slash == std::string_view::npos) return false;
  const std::string_view group = name.substr(0, slash);
  return group.find("perf") != group.npos || group.find("timing") != group.npos;
}

bool StartsHeader(std::string_view name) {
  return StepNameRank(name) >= 0 || name == "Round" || name == "round";
}

}  // namespace

bool LogTable::Take(std::string_view line, bool* whole) {
  *whole = false;
  const size_t first = line.find_first_not_of(" \t");
  if (first == std::string_view::npos || line.size() > 4096) return false;
  const char c = line[first];
  if (c == '\xE2' && panel_.Begin(line)) {
    box_.clear();
    drawn_ = false;
    return true;
  }
  if (c == '|' && panel_.TakeRow(line)) return true;
  if (c == '\xE2' && IsDrawnRule(line)) return TakeDrawnRule(line, whole) || active();
  if (c == '|' && drawn_ && TakePairs(CellsBetweenPipes(line))) return true;
  if (c == '|' || c == '-' || c == '+') {
    if (TakeBox(line, whole)) return true;
    if (IsRule(line)) return active();
  }
  if (!heads_.empty()) {
    const bool more = c == '|' && TakeHeaderAgain(CellsBetweenPipes(line));
    if (!more) heads_.clear();
    if (more) return true;
  }
  if (active() && (IsPairDigit(c) || c == '|') && (*whole = TakeRow(line))) return true;
  if (TakeAligned(line, whole)) return true;
  if (c == 'a' || vowpal_ == 1) {
    if (TakeVowpal(line)) return true;
  }
  return (IsPairLetter(c) || c == '|' || c == '#') && TakeHeader(line);
}

// Takes a row or a header of a table whose step is a later column of a group between pipes.
bool LogTable::TakeAligned(std::string_view line, bool* whole) {
  const char c = line[line.find_first_not_of(" \t")];
  if (!aligned_.active() || !IsPairDigit(c)) return c == 'I' && aligned_.TakeHeader(line);
  *whole = aligned_.TakeRow(line);
  if (!*whole) return false;
  row_ = LogRow();
  row_.step = aligned_.step();
  row_.values = std::move(aligned_.values());
  return true;
}

// Takes the header of Vowpal Wabbit, which is two lines of words.
bool LogTable::TakeVowpal(std::string_view line) {
  static constexpr std::string_view kHeads[2][7] = {
      {"average", "since", "example", "example", "current", "current", "current"},
      {"loss", "last", "counter", "weight", "label", "predict", "features"}};
  const auto& head = kHeads[std::exchange(vowpal_, 0) == 1 ? 1 : 0];
  if (line.substr(line.find_first_not_of(' '), head[0].size()) != head[0]) return false;
  const std::vector<std::string_view> cells = CellsOf(line, true);
  if (!std::equal(cells.begin(), cells.end(), std::begin(head), std::end(head))) return false;
  if (head[0] == kHeads[0][0]) {
    vowpal_ = 1;
    return true;
  }
  vowpal_ = 2;
  columns_ = {"average loss",  "loss since last", "example counter", "example weight",
              "current label", "current predict", "features"};
  step_at_ = 2;
  epoch_ = batches_ = false;
  return true;
}

bool LogTable::TakeHeader(std::string_view line) {
  // Fast test: the first word of most lines shows that they are not headers.
  std::string_view word = line;
  static constexpr Bytes kBefore(" \t|#");
  Trim(&word, kBefore, kTableEdges);
  const bool comment = line[line.find_first_not_of(" \t")] == '#';
  const std::string_view text = word;
  word = word.substr(0, word.find_first_of(" \t|"));
  // In "Epoch 3 | loss 2.5", a count follows the word, so this is not a header.
  const size_t next = PassBlanks(text, word.size());
  if (next < text.size() && IsPairDigit(text[next])) return false;
  if (!BeginsStepName(word) && word != "Round" && word != "round") return TakeWideHeader(line);
  const bool piped = text.find('|') != std::string_view::npos;
  std::vector<std::string_view> cells = CellsOf(comment ? text : line, false);
  const bool spaced = cells[0] != "E" && !StartsHeader(cells[0]);
  if (cells.size() == 1 || spaced) cells = WithJoinedNames(CellsOf(comment ? text : line, true));
  if (cells.size() < 2 || cells.size() > kMostColumns ||
      !(StartsHeader(cells[0]) || (cells[0] == "E" && cells[1] == "#")))
    return false;
  // A line with a value, as "Epoch 3 | Loss: 2.5", is not a header.
  if (std::any_of(cells.begin(), cells.end(), HasSignOfValue)) return false;
  if (SetColumns({cells.begin(), cells.end()})) return true;
  // A header between pipes may continue on the next line: "|  Mini-batch  |", "|     Loss     |".
  if (piped) heads_.assign(cells.begin(), cells.end());
  return piped;
}

// Takes "   gnorm  loss    lr  total_train_updates" (ParlAI): an indented header whose step is one
// of its later columns.
bool LogTable::TakeWideHeader(std::string_view line) {
  constexpr size_t kFewest = 3;
  if (!line.starts_with("  ") || line.find('_') == line.npos || HasSignOfValue(line)) return false;
  const std::vector<std::string_view> cells = CellsOf(line, true);
  const auto step = std::find_if(cells.begin(), cells.end(), [](std::string_view cell) {
    return cell.find('_') != cell.npos && StepNameRank(cell) >= 0 && !IsEpochName(cell);
  });
  if (cells.size() < kFewest || cells.size() > kMostColumns || step == cells.end() ||
      !SetColumns({cells.begin(), cells.end()}))
    return false;
  step_at_ = static_cast<size_t>(step - cells.begin());
  epoch_ = batches_ = false;
  return true;
}

// Takes the next line of a header. Its first cell is empty, and its cells continue those above.
bool LogTable::TakeHeaderAgain(const std::vector<std::string_view>& cells) {
  if (cells.size() != heads_.size() || !cells[0].empty()) return false;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].empty()) continue;
    if (cells[i].size() > kMostNameBytes) return false;
    heads_[i].append(heads_[i].empty() ? "" : " ").append(cells[i]);
  }
  SetColumns(heads_);
  return true;
}

// Returns false, and changes nothing, if the names are not those of a training table.
bool LogTable::SetColumns(std::vector<std::string> names) {
  const bool training = std::any_of(names.begin(), names.end(), HasTrainingWord);
  const bool named = std::all_of(names.begin(), names.end(), MayNameColumn);
  if (!training || !named) return false;
  // An epoch, then a count within it or over all epochs: spaCy's "E    #", "Epoch | Iteration".
  const std::string_view second = names[1];
  const bool two = second == "#" || IsBatchName(second) ||
                   (IsEpochName(names[0]) && StepNameRank(second) >= 0 && !IsEpochName(second));
  step_at_ = two ? 1 : 0;
  batches_ = two && IsBatchName(second);
  epoch_ = !two && (IsEpochName(names[0]) || names[0] == "Round" || names[0] == "round");
  columns_ = std::move(names);
  vowpal_ = 0;
  return true;
}

bool LogTable::TakeRow(std::string_view line) {
  // A bar may follow the row: "... 640: 100%|████| 625/625 [...]".
  size_t bar = line.find("%|");
  // Since Ultralytics 8.3 the bar is "640: 100% \u2501\u2501\u2501 59/59 4.7it/s 12.5s".
  if (bar == std::string_view::npos) bar = line.find("% \xE2");
  if (bar != std::string_view::npos) line = line.substr(0, line.rfind(':', bar));
  std::vector<std::string_view> cells = CellsOf(line, false);
  if (cells.size() != columns_.size()) cells = WithJoinedNames(CellsOf(line, true));
  // pandas prints each row's number first.
  if (cells.size() == columns_.size() + 1 && line.find('|') == line.npos && StepCell(cells[0]))
    cells.erase(cells.begin());
  // Rows that end in "h" are losses of held-out examples.
  if (vowpal_ == 2 && cells.size() == columns_.size() + 1 && cells.back() == "h") cells.pop_back();
  if (cells.size() != columns_.size()) return false;
  const std::optional<int64_t> step = StepCell(cells[step_at_]);
  if (!step) return false;
  row_.values.clear();
  row_.texts = 0;
  const bool of_epoch = step_at_ > 0 && IsEpochName(columns_[0]);
  row_.of_epoch = of_epoch ? StepCell(cells[0]).value_or(-1) : -1;
  for (size_t i = step_at_ == 0 ? 1 : 0; i < cells.size(); ++i) {
    if (i == step_at_ || (i == 0 && row_.of_epoch >= 0)) continue;
    const std::optional<double> number = NumberOfCell(cells[i]);
    if (!number && !IsFiller(cells[i])) return false;
    row_.texts += number || cells[i].empty() ? 0 : 1;
    if (number) row_.values.push_back({columns_[i], *number});
  }
  row_.step = *step;
  row_.epoch = epoch_;
  row_.batches = batches_;
  return !row_.values.empty();
}

// Takes a row of two cells, or the rule that ends the box.
bool LogTable::TakeBox(std::string_view line, bool* whole) {
  if (IsRule(line)) {
    const bool some = !box_.empty();
    *whole = some && EndBox();
    box_.clear();
    group_.clear();
    return some;
  }
  std::string_view text = line;
  Trim(&text, kSpaces, kSpaces);
  if (text.size() < 5 || text.front() != '|' || text.back() != '|') return false;
  text = text.substr(1, text.size() - 2);
  const size_t pipe = text.find('|');
  if (pipe == std::string_view::npos || text.find('|', pipe + 1) != std::string_view::npos)
    return false;
  std::string_view name = text.substr(0, pipe), value = text.substr(pipe + 1);
  const bool indented = name.starts_with("   ");
  Trim(&name, kSpaces, kSpaces);
  Trim(&value, kSpaces, kSpaces);
  if (name.empty() || name.size() > kMostNameBytes || box_.size() == kMostBox) return false;
  if (NumberOf(name)) return false;  // it is a row of a table with two columns
  if (value.empty()) {
    group_ = name.ends_with('/') ? name : std::string(name) + "/";
    return true;
  }
  const std::optional<double> number = NumberOfCell(value);
  if (!number) return !box_.empty();
  const bool grouped = indented && !group_.empty();
  box_.push_back({(grouped ? group_ : "") + std::string(name), *number});
  return true;
}

// Takes a rule. A rule between two rows does not end the box.
bool LogTable::TakeDrawnRule(std::string_view line, bool* whole) {
  panel_.End(kMostBox, &box_);
  if (!box_.empty() && IsInnerRule(line)) return true;
  drawn_ = IsTopRule(line) || (drawn_ && IsInnerRule(line));
  return TakeBox("---", whole);
}

// Takes a row "| loss | 2.5 | lr | 1e-4 |" of a drawn box (AReaL). Empty cells fill its last row.
bool LogTable::TakePairs(const std::vector<std::string_view>& cells) {
  if (cells.size() < 4 || cells.size() % 2 != 0) return false;
  std::vector<LogRow::Value> pairs;
  for (size_t i = 0; i < cells.size(); i += 2) {
    const std::string_view name = cells[i], text = cells[i + 1];
    if (name.empty() && text.empty()) continue;
    const std::optional<double> number = NumberOfCell(text);
    if (!number || name.empty() || name.size() > kMostNameBytes || NumberOf(name)) return false;
    pairs.push_back({std::string(name), *number});
  }
  if (box_.size() + pairs.size() > kMostBox) return false;
  std::move(pairs.begin(), pairs.end(), std::back_inserter(box_));
  return !pairs.empty();
}

// Ends the box. Its step is an environment's number of time steps, else another name of a step.
bool LogTable::EndBox() {
  int best = -1;
  size_t at = box_.size();
  for (size_t i = 0; i < box_.size(); ++i) {
    const bool first =
        box_[i].name.ends_with("total_timesteps") ||
        box_[i].name.ends_with("/training_step");  // open-instruct also counts episodes
    const int rank = first ? 0
                     : IsEpochName(box_[i].name)
                         ? 1000
                         : StepNameRank(box_[i].name.substr(box_[i].name.rfind('/') + 1));
    if (rank < 0 || !IsWhole(box_[i].value) || (best >= 0 && rank >= best)) continue;
    if (IsTimeOfStep(box_[i].name)) continue;
    best = rank;
    at = i;
  }
  const bool above = at == box_.size();
  if (above && (step_above_ < 0 || !TrainsIn(box_))) return false;
  row_.step = above ? std::exchange(step_above_, -1) : static_cast<int64_t>(box_[at].value);
  row_.of_epoch = -1;
  row_.above = above;
  row_.epoch = best >= 1000;
  row_.texts = 0;
  row_.values.clear();
  for (size_t i = 0; i < box_.size(); ++i) {
    if (i != at) row_.values.push_back(std::move(box_[i]));
  }
  return row_.step >= 0 && !row_.values.empty();
}

}  // namespace plumbline::audit
