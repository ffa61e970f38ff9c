#include "audit/readers/trainer_log/log_alone.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/log_text/log_pairs.h"
#include "audit/readers/scalars/step_name.h"
#include "audit/readers/trainer_log/log_line.h"

namespace plumbline::audit {
namespace {

// Returns the names of a line that has only names and numbers, one of them a loss; empty for other
// lines.
std::string NamesAlone(std::string_view line) {
  static constexpr Bytes kFront(" \t*-");
  Trim(&line, kFront, kSpaces);
  if (line.empty() || !IsPairLetter(line[0]) || line.size() > 400) return "";
  std::string names;
  bool loss = false;
  LogNames known;
  LogPairs pairs(line, &known);
  for (LogPair pair; pairs.Next(&pair);) {
    if (pair.absent || !pair.after_sign || pair.named_after) return "";
    loss |= pair.name.ends_with("oss") && HasTrainingWord(pair.name);
    names.append(pair.name).push_back('|');
  }
  return loss && pairs.refused() == 0 ? names : "";
}

}  // namespace

bool RowsStandAlone(std::string_view sample) {
  constexpr size_t kFewest = 8;
  // Fast test: most files have no such line.
  if (sample.find("oss") == sample.npos) return false;
  LogParser parser;
  LogRecord record;
  std::string names;
  size_t rows = 0, others = 0;
  while (!sample.empty()) {
    const size_t end = sample.find_first_of("\r\n");
    if (end == sample.npos) break;  // the last line may be truncated
    const std::string_view line = sample.substr(0, end);
    sample.remove_prefix(end + 1);
    if (line.find_first_not_of(" \t") == line.npos) continue;
    if (parser.Parse(line, true, &record)) return false;
    std::string found = NamesAlone(line);
    if (names.empty()) names = found;
    const bool row = !found.empty() && found == names;
    ++(row ? rows : others);
  }
  return rows >= kFewest && rows > others;
}

// Takes a row of a log in which no line has a step.
bool LogParser::ParseAlone(std::string_view line, bool ended, LogRecord* record) {
  if (NamesAlone(line).empty()) return false;
  record->how = LogRecord::Step::kCounted;
  TakePairs(line, ended, record);
  return HasTraining(*record);
}

}  // namespace plumbline::audit
