#include "audit/readers/log_text/log_aligned.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_name.h"

namespace plumbline::audit {
namespace {

constexpr Bytes kAlignedParts(" \t|");
constexpr size_t kFewestAligned = 6, kMostAligned = 32, kMostOfLast = 8;

std::vector<std::string_view> AlignedWords(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < line.size();) {
    size_t end = at;
    while (end < line.size() && !kAlignedParts[line[end]]) ++end;
    if (end > at && words.size() <= kMostAligned) words.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

bool NamesAlignedColumn(std::string_view word) {
  constexpr size_t kLongest = 16;
  return word.size() <= kLongest && IsPairLetter(word[0]) &&
         std::all_of(word.begin(), word.end(), [](char c) {
           return IsPairLetter(c) || IsPairDigit(c) || c == '.' || c == '_';
         });
}

// Reads the number at `from`. A number may follow without a space: an exponent has two digits, or
// three before a space; if there is a second point, the first number has two decimals.
const char* ScanAligned(const char* from, const char* to, double* value) {
  constexpr std::ptrdiff_t kDecimals = 2;
  const char* end = from;
  if (end != to && (*end == '-' || *end == '+')) ++end;
  const char* point = nullptr;
  for (; end != to && (IsPairDigit(*end) || *end == '.'); ++end) {
    if (*end != '.') continue;
    if (point != nullptr && end - point > kDecimals + 1) {
      const char* const cut = point + 1 + kDecimals;
      return ScanNumber(from, cut, value) == cut ? cut : from;
    }
    point = end;
  }
  if (end == from || to - end < 4 || *end != 'e') return ScanNumber(from, to, value);
  end += 4;  // "e+03"
  if (end != to && IsPairDigit(*end) && (end + 1 == to || kAlignedParts[end[1]])) ++end;
  return ScanNumber(from, end, value) == end ? end : from;
}

// Returns the numbers of a row. Returns none if the line has any other text.
std::vector<double> AlignedNumbers(std::string_view line) {
  std::vector<double> numbers;
  const char* at = line.data();
  const char* const to = at + line.size();
  while (at != to) {
    if (kAlignedParts[*at]) {
      ++at;
      continue;
    }
    double value = 0;
    const char* const stop = ScanAligned(at, to, &value);
    const bool ends = stop == to || kAlignedParts[*stop] || *stop == '-' || IsPairDigit(*stop);
    if (stop == at || !ends || numbers.size() > kMostAligned + kMostOfLast) return {};
    numbers.push_back(value);
    at = stop;
  }
  return numbers;
}

}  // namespace

bool LogAligned::TakeHeader(std::string_view line) {
  const size_t pipe = line.find('|');
  if (pipe == std::string_view::npos) return false;
  std::vector<std::string_view> words = AlignedWords(line);
  if (words.size() < kFewestAligned || words.size() > kMostAligned) return false;
  const auto step = std::find_if(words.begin(), words.end(), [](std::string_view word) {
    return StepNameRank(word) >= 0 && !IsEpochName(word);
  });
  // The step shares its group with other columns; elsewhere a pipe ends each column.
  const bool shares =
      step != words.end() && step != words.begin() && step->data() < line.data() + pipe;
  if (!shares || !std::all_of(words.begin(), words.end(), NamesAlignedColumn) ||
      std::none_of(words.begin(), words.end(), HasTrainingWord))
    return false;
  columns_.assign(words.begin(), words.end());
  step_at_ = static_cast<size_t>(step - words.begin());
  printed_ = first_id_ = -1;
  again_ = 0;
  full_ = false;
  return true;
}

bool LogAligned::TakeRow(std::string_view line) {
  constexpr size_t kFewest = 3;
  const std::vector<double> numbers = AlignedNumbers(line);
  if (numbers.size() < std::max(kFewest, step_at_ + 2) ||
      numbers.size() > columns_.size() + kMostOfLast)
    return false;
  const double printed = numbers[step_at_];
  if (!IsWhole(printed) || printed < 0) return false;
  values_.clear();
  std::string group;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const bool last = i + 1 >= columns_.size();
    if (i == step_at_) continue;
    if (i == 0 && columns_[0] == "ID") {
      if (first_id_ < 0) first_id_ = numbers[0];
      if (numbers[0] != first_id_ && IsWhole(numbers[0]))
        group = "id" + std::to_string(static_cast<int64_t>(numbers[0])) + "/";
      continue;
    }
    std::string name = group + columns_[std::min(i, columns_.size() - 1)];
    if (last && i >= columns_.size()) name += std::to_string(i + 2 - columns_.size());
    values_.push_back({std::move(name), numbers[i]});
  }
  Count(printed, numbers.size() + 1 >= columns_.size());
  return !values_.empty();
}

void LogAligned::Count(double printed, bool full) {
  const bool same = printed == std::exchange(printed_, printed);
  again_ = !same ? 0 : again_ + (full_ ? 1 : 0);
  full_ = full;
  step_ = static_cast<int64_t>(printed) + again_;
}

}  // namespace plumbline::audit
