#include "audit/readers/trainer_log/log_lead.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_name.h"
#include "audit/readers/trainer_log/log_counts.h"

namespace plumbline::audit {
namespace {

// Returns the name at the beginning of `text`, up to a sign or a number.
std::string_view NameAhead(std::string_view text) {
  static constexpr Bytes kFront(" \t[");
  static constexpr Bytes kBack(" \t-");
  Trim(&text, kFront, kSpaces);
  std::string_view name = text.substr(0, text.find_first_of(":=|0123456789,"));
  Trim(&name, kSpaces, kBack);
  return !name.empty() && name.size() <= 48 && IsPairLetter(name[0]) ? name : std::string_view();
}

bool TrainingAhead(std::string_view text) {
  if (HasTrainingWord(NameAhead(text))) return true;
  // In "[L1: 2.5]", the digit is part of the name.
  static constexpr Bytes kFront(" \t[");
  Trim(&text, kFront, kSpaces);
  const std::string_view name = text.substr(0, text.find_first_of(":= "));
  return !name.empty() && name.size() <= 24 && IsPairLetter(name[0]) && HasTrainingWord(name);
}

// True if the text is a number with a fraction, or a non-finite one, and nothing else.
bool IsNumberAlone(std::string_view text) {
  static constexpr Bytes kFront(" \t:");
  Trim(&text, kFront, kSpaces);
  double value = 0;
  const char* end = text.data() + text.size();
  if (text.empty() || ScanNumber(text.data(), end, &value) != end) return false;
  return text.find('.') != std::string_view::npos || IsPairLetter(text[0]) || text[0] == '-';
}

// Returns the mark if the text after mark.end confirms that it is a count.
std::optional<LogMark> Checked(std::string_view text, LogMark mark) {
  const std::string_view rest = text.substr(mark.end);
  if (IsNumberAlone(rest)) {
    mark.nameless = mark.weak = true;
    return mark;
  }
  return TrainingAhead(rest) ? std::optional(mark) : std::nullopt;
}

// Reads "[3/25][50/1583]", "[100/3000] loss: 2.5".
std::optional<LogMark> BracketOfRatio(std::string_view text, LogMark first, size_t end) {
  LogMark mark = first;
  const size_t next = PassBlanks(text, end);
  const size_t second = ReadBracket(text, next, &mark);
  mark.end = second;
  if (second != next) {
    mark.epoch = first.step;
    mark.batches = true;
    return mark;
  }
  first.end = end;
  return Checked(text, first);
}

// Reads the rest of "[1,  2000]", "[3: 10/200]", "[100 | 12.34]", "[12]" after the first count,
// which ends at `at`.
std::optional<LogMark> BracketOfCount(std::string_view text, LogMark mark, size_t at) {
  if (ByteIs(text, at, ',')) {
    mark.epoch = mark.step;
    const size_t number = PassBlanks(text, at + 1);
    const size_t close = PassBlanks(text, ReadLogCount(text, number, &mark.step));
    if (close == number || !ByteIs(text, close, ']')) return std::nullopt;
    mark.batches = true;
    mark.end = close + 1;
    return mark;
  }
  if (ByteIs(text, at, ':')) {
    mark.epoch = mark.step;
    const size_t number = PassBlanks(text, at + 1);
    const size_t close = ReadRatio(text, number, &mark);
    if (close == number || !ByteIs(text, close, ']')) return std::nullopt;
    mark.batches = true;
    mark.end = close + 1;
    return mark;
  }
  if (text.substr(at, 3) == " | ") {
    const size_t close = text.find(']', at);
    if (close == std::string_view::npos || close - at > 16) return std::nullopt;
    mark.end = close + 1;
    return Checked(text, mark);
  }
  if (!ByteIs(text, at, ']') || !(ByteIs(text, at + 1, '\t') || ByteIs(text, at + 1, ' ')))
    return std::nullopt;
  mark.end = at + 1;
  // A name and a colon, or a name of a training, must follow. Otherwise the line is a numbered
  // message.
  const std::string_view rest = text.substr(PassBlanks(text, at + 1));
  const size_t colon = rest.find_first_of(":=");
  const bool named = colon != std::string_view::npos && colon > 0 && colon <= 64 &&
                     IsPairLetter(rest[0]) && colon + 1 < rest.size();
  return named ? std::optional(mark) : Checked(text, mark);
}

// Reads "12:\tlearn: 0.5", "100/ 2000: 2.5", "100) loss = 2.5", "3 100 loss - 2.5".
std::optional<LogMark> PlainLead(std::string_view text, size_t at) {
  LogMark mark;
  mark.begin = at;
  const size_t ratio = ReadRatio(text, at, &mark);
  if (ratio != at) {
    mark.end = ratio;
    // Handles "1/21150 (epoch 0.002), train_loss = 4.2".
    const size_t share = text.substr(PassBlanks(text, ratio)).starts_with("(epoch ")
                             ? text.find(')', ratio)
                             : std::string_view::npos;
    if (share != std::string_view::npos && share - ratio < 24) {
      if (!TrainingAhead(text.substr(std::min(text.size(), share + 2)))) return std::nullopt;
      return mark;
    }
    return Checked(text, mark);
  }
  const size_t plain = ReadLogCount(text, at, &mark.step);
  if (plain == at || plain == text.size()) return std::nullopt;
  mark.end = plain + 1;
  const size_t next = PassBlanks(text, plain + 1);
  if (ByteIs(text, plain, ':')) {
    const std::string_view rest = text.substr(std::min(next, text.size()));
    const bool learns = rest.starts_with("learn:") || rest.starts_with("test:") ||
                        rest.find(" avg loss, ") != rest.npos;
    if (learns) return mark;
    return next > plain + 1 && IsNumberAlone(rest) ? Checked(text, mark) : std::nullopt;
  }
  if (ByteIs(text, plain, ')') || (ByteIs(text, plain, '.') && ByteIs(text, plain + 1, ' ')))
    return Checked(text, mark);
  if (!IsSpaceByte(text[plain])) return std::nullopt;
  // The counts are an epoch and a batch.
  int64_t second = 0;
  const size_t end = ReadLogCount(text, next, &second);
  if (end != next && ByteIs(text, end, ' ') && TrainingAhead(text.substr(end))) {
    mark.epoch = mark.step;
    mark.step = second;
    mark.batches = true;
    mark.end = end;
    return mark;
  }
  return end == next && TrainingAhead(text.substr(next)) ? std::optional(mark) : std::nullopt;
}

}  // namespace

std::optional<LogMark> LeadingCount(std::string_view text) {
  size_t at = PassBlanks(text, 0);
  if (at == text.size()) return std::nullopt;
  if (IsPairDigit(text[at])) return PlainLead(text, at);
  LogMark mark;
  if (text[at] == 's' && ByteIs(text, at + 1, ':')) {  // handles llm.c's "s:20 trl:2.5"
    mark.begin = at;
    mark.end = ReadLogCount(text, at + 2, &mark.step);
    return mark.end == at + 2 ? std::nullopt : Checked(text, mark);
  }
  if (text[at] == 'S') {  // handles "S000405 loss:2.5"
    constexpr size_t kFewestDigits = 3;
    mark.begin = at;
    mark.end = ReadLogCount(text, at + 1, &mark.step);
    return mark.end < at + 1 + kFewestDigits ? std::nullopt : Checked(text, mark);
  }
  if (text[at] == '#') {
    mark.begin = at;
    mark.end = ReadLogCount(text, at + 1, &mark.step);
    return mark.end == at + 1 ? std::nullopt : Checked(text, mark);
  }
  // Skips the prefix of absl: "I0514 03:22:10.123456 139812345 logging_writer.py:48] [100]
  // loss=2.3".
  const bool google = text.size() > 8 && std::strchr("IWE", text[0]) != nullptr &&
                      IsPairDigit(text[1]) && IsPairDigit(text[4]) && text[5] == ' ';
  if (const size_t close = google ? text.find("] [") : text.npos; close < 96) at = close + 2;
  // Skips a time in separate brackets.
  if (ByteIs(text, at, '[') && at + 9 < text.size() && text[at + 3] == ':' && text[at + 9] == ']')
    at = PassBlanks(text, at + 10);
  if (!ByteIs(text, at, '[')) return std::nullopt;
  mark.begin = at;
  const size_t both = ReadBracket(text, at, &mark);
  if (both != at) return BracketOfRatio(text, mark, both);
  const size_t first = PassBlanks(text, at + 1);
  const size_t end = ReadLogCount(text, first, &mark.step);
  return end == first ? std::nullopt : BracketOfCount(text, mark, end);
}

std::optional<LogMark> TrailingCount(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t");
  if (last == std::string_view::npos || text[last] != ']') return std::nullopt;
  const size_t open = text.rfind('[', last);
  if (open == std::string_view::npos || last - open > 40) return std::nullopt;
  LogMark mark;
  mark.begin = open;
  mark.end = ReadBracket(text, open, &mark);
  mark.batches = true;
  return mark.end == last + 1 ? std::optional(mark) : std::nullopt;
}

std::optional<LogMark> RatioAnywhere(std::string_view text) {
  constexpr size_t kFar = 256;
  static constexpr Bytes kFront(" =([:\t,]");
  static constexpr Bytes kBack(" )],|:\t;");
  LogMark mark;
  mark.weak = mark.batches = true;
  const auto at_sign = [&](size_t sign) {
    size_t begin = sign;
    while (begin > 0 && IsSpaceByte(text[begin - 1])) --begin;
    while (begin > 0 && IsPairDigit(text[begin - 1])) --begin;
    if (begin > 0 && !kFront[text[begin - 1]]) return false;
    mark.begin = begin;
    mark.end = ReadRatio(text, begin, &mark);
    const std::string_view rest = text.substr(mark.end);
    // Excludes bars of Keras, which end in separate lines, and dates such as "05/14 03:22".
    const bool keras = text.substr(0, begin).find_first_not_of(" \b") == text.npos &&
                       (rest.starts_with(" [") || rest.starts_with(" \u2501"));
    const bool date = rest.size() > 3 && IsPairDigit(rest[1]) && rest[3] == ':';
    return mark.end > begin && mark.total > 1 && (rest.empty() || kBack[rest[0]]) && !keras &&
           !date;
  };
  for (size_t at = text.find('/'); at < std::min(text.size(), kFar); at = text.find('/', at + 1)) {
    if (at > 0 && at_sign(at)) return mark;
  }
  const size_t of = text.find('(') < kFar ? text.find(" of ") : text.npos;
  if (of != std::string_view::npos && at_sign(of) && ByteIs(text, mark.begin - 1, '(')) return mark;
  return std::nullopt;
}

std::optional<LogMark> CountAfterWord(std::string_view text) {
  static constexpr std::string_view kUnits[] = {
      "steps", "step", "iterations", "iteration", "iters", "epochs", "epoch", "updates", "batches"};
  constexpr std::string_view kAfter = "fter ";
  const size_t word = text.find(kAfter);
  if (word == std::string_view::npos || word == 0 || (text[word - 1] | 0x20) != 'a')
    return std::nullopt;
  LogMark mark;
  mark.begin = word + kAfter.size();
  const size_t number = ReadLogCount(text, mark.begin, &mark.step);
  const size_t unit = PassBlanks(text, number);
  if (number == mark.begin || unit == number) return std::nullopt;
  const auto* found = std::find_if(std::begin(kUnits), std::end(kUnits), [&](std::string_view u) {
    return unit < text.size() && HasWordAt(text, unit, u);
  });
  if (found == std::end(kUnits)) return std::nullopt;
  mark.end = unit + found->size();
  mark.weak = true;
  if (found->starts_with("epoch")) {
    mark.kind = LogMark::Kind::kEpoch;
    mark.epoch = mark.step;
  }
  return mark;
}

std::optional<LogMark> CountAfterName(std::string_view text) {
  const size_t begin = PassBlanks(text, 0);
  size_t at = begin;
  while (at < text.size() && (IsPairLetter(text[at]) || text[at] == ' ' || text[at] == '_')) ++at;
  if (at == begin || at - begin > 32 || at == text.size() || text[at - 1] != ' ')
    return std::nullopt;
  const std::string_view name = text.substr(begin, at - 1 - begin);
  LogMark mark;
  mark.begin = at;
  mark.end = ReadLogCount(text, at, &mark.step);
  if (mark.end == at || !(ByteIs(text, mark.end, ' ') || text.substr(mark.end, 2) == ": "))
    return std::nullopt;
  double value = 0;
  const char* from = text.data() + PassBlanks(text, mark.end + 1);
  const char* to = text.data() + text.size();
  const char* stop = from < to ? ScanNumber(from, to, &value) : from;
  const std::string_view number(from, static_cast<size_t>(stop - from));
  const bool fraction = number.find('.') != std::string_view::npos || number.starts_with('n');
  if (!fraction || !HasTrainingWord(name)) return std::nullopt;
  mark.named_before = true;
  return mark;
}

std::optional<LogMark> ListOfStep(std::string_view text) {
  constexpr size_t kLongest = 120;
  if (text.size() > kLongest || !text.ends_with(']')) return std::nullopt;
  const size_t open = text.rfind('[');
  const bool apart = open == 0 || (open != text.npos && std::strchr(" :\t", text[open - 1]));
  if (open == std::string_view::npos || !apart) return std::nullopt;
  LogMark mark;
  mark.begin = open;
  const size_t end = ReadLogCount(text, open + 1, &mark.step);
  double rate = 0;
  const char* to = text.data() + text.size() - 1;
  if (end == open + 1 || text.substr(end, 2) != ", ") return std::nullopt;
  if (ScanNumber(text.data() + end + 2, to, &rate) != to || !(rate > 0) || rate >= 1)
    return std::nullopt;
  mark.end = text.size();
  mark.alone = mark.list = true;
  return mark;
}

std::optional<LogMark> UnnamedList(std::string_view text) {
  constexpr size_t kLongest = 1024, kFewest = 3;
  if (text.size() > kLongest || !text.ends_with(']')) return std::nullopt;
  const size_t open = text.rfind('[');
  if (open == std::string_view::npos) return std::nullopt;
  LogMark mark;
  mark.begin = open;
  mark.end = text.size();
  std::string_view number, step;
  double value = 0;
  size_t count = 0;
  for (size_t at = open + 1; at < text.size(); at += number.size() + 2) {
    step = number;
    const char* const from = text.data() + at;
    const char* const stop = ScanNumber(from, text.data() + text.size() - 1, &value);
    number = {from, static_cast<size_t>(stop - from)};
    ++count;
    const std::string_view after = text.substr(at + number.size(), 2);
    if (number.empty() || (after != ", " && after != "]")) return std::nullopt;
  }
  const bool fraction = number.find_first_of(".e") != number.npos;
  if (count < kFewest || !fraction || !(value >= 0) || value >= 1) return std::nullopt;
  if (step.empty() || ReadLogCount(step, 0, &mark.step) != step.size()) return std::nullopt;
  mark.unnamed = true;
  return mark;
}

}  // namespace plumbline::audit
