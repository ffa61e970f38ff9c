#include "audit/readers/log_text/log_words.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/log_text/lost_escapes.h"
#include "audit/readers/scalars/number_text.h"

namespace plumbline::audit {

size_t PassPhase(std::string_view text, size_t at, LogMark* mark) {
  if (at >= text.size() || text[at] != '(') return at;
  const size_t close = text.find(')', at);
  if (close == std::string_view::npos || close - at > 8) return at;
  const std::string_view phase = text.substr(at + 1, close - at - 1);
  mark->evaluation = phase == "val" || phase == "test" || phase == "eval";
  return mark->evaluation || phase == "train" ? close + 1 : at;
}

namespace {

inline bool IsLogDigit(char c) { return c >= '0' && c <= '9'; }
inline char Small(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
inline bool IsLogLetter(char c) { return Small(c) >= 'a' && Small(c) <= 'z'; }
inline bool IsNameByte(char c) { return IsLogLetter(c) || IsLogDigit(c) || c == '_'; }

}  // namespace

bool HasWordAt(std::string_view text, size_t at, std::string_view word) {
  if (text.size() - at < word.size()) return false;
  for (size_t i = 0; i < word.size(); ++i) {
    if (Small(text[at + i]) != word[i]) return false;
  }
  const size_t end = at + word.size();
  return end == text.size() || !IsNameByte(text[end]);
}

size_t ReadLogCount(std::string_view text, size_t at, int64_t* count) {
  const size_t begin = at;
  int64_t value = 0;
  size_t digits = 0;
  while (at < text.size()) {
    const bool group = (text[at] == ',' || text[at] == '_') && digits > 0 && at + 3 < text.size() &&
                       IsLogDigit(text[at + 1]) && IsLogDigit(text[at + 2]) &&
                       IsLogDigit(text[at + 3]) &&
                       (at + 4 == text.size() || !IsLogDigit(text[at + 4]));
    if (!IsLogDigit(text[at]) && !group) break;
    if (!group) {
      if (++digits > 15) return begin;
      value = 10 * value + (text[at] - '0');
    }
    ++at;
  }
  if (digits == 0) return begin;
  *count = value;
  return at;
}

namespace {

// Sorted by length, longest words first.
constexpr std::string_view kMarkWords[] = {
    "iterations", "iteration", "iterate",  "iters",    "itrs",         "iter",
    "itr",        "it",        "steps",    "step",     "updates",      "update",
    "step_i",     "step_num",  "step_idx", "iter_num", "step_in_epoch"};

// Words before a mark, joined to it by '_' or a space. After the first ones the number is a step;
// after the others it is not.
constexpr std::string_view kJoinedBefore[] = {"global_",  "train_",     "trainer_", "training_",
                                              "current_", "optimizer_", "n_",       "opt_"};
constexpr std::string_view kNotBefore[] = {
    "max",   "total",        "warmup",    "num", "accumulation",  "per",  "logging", "save",
    "every", "optimization", "decay",     "of",  "skipped",       "nan",  "number",  "maximum",
    "from",  "until",        "remaining", "log", "eval_interval", "each", "last"};

// Returns the word before `at`. Skips spaces between the word and `at`.
std::string_view LogWordBefore(std::string_view text, size_t at) {
  while (at > 0 && text[at - 1] == ' ') --at;
  size_t begin = at;
  while (begin > 0 && IsNameByte(text[begin - 1])) --begin;
  return text.substr(begin, at - begin);
}

template <size_t N>
bool IsOneOf(std::string_view word, const std::string_view (&words)[N]) {
  return std::any_of(std::begin(words), std::end(words), [&](std::string_view known) {
    return word.size() == known.size() && HasWordAt(word, 0, known);
  });
}

}  // namespace

bool IsLimitBefore(std::string_view text, size_t at) {
  const std::string_view word = LogWordBefore(text, at);
  if (!IsOneOf(word, kNotBefore)) return false;
  // In "loss=nan step=1", the word before is a value, not a name.
  size_t before = static_cast<size_t>(word.data() - text.data());
  while (before > 0 && text[before - 1] == ' ') --before;
  return before == 0 || (text[before - 1] != '=' && text[before - 1] != ':');
}

namespace {

// These words have other meanings, so they are marks only at the beginning of a line or of a part.
bool BeginsPart(std::string_view text, size_t at) {
  size_t before = at;
  while (before > 0 && text[before - 1] == ' ') --before;
  return before == 0 || std::strchr("[](|,;:-", text[before - 1]) != nullptr;
}

// Returns the length of "rollout" in "rollout/step=5" if `at` is the place of "step" and the number
// has no unit; 0 for other texts, such as "s/step" and "train/step: 12 ms".
size_t SubjectBefore(std::string_view text, size_t at, std::string_view word) {
  static constexpr std::string_view kSubjects[] = {"train", "trainer", "training", "rollout",
                                                   "eval",  "val",     "valid",    "test"};
  static constexpr std::string_view kUnits[] = {"s",   "ms",   "us",      "ns",
                                                "sec", "secs", "seconds", "min"};
  if (at < 2 || text[at - 1] != '/') return 0;
  size_t begin = at - 1;
  while (begin > 0 && (IsNameByte(text[begin - 1]) || text[begin - 1] == '/')) --begin;
  const std::string_view subject = text.substr(begin, at - 1 - begin);
  size_t end = PassBlanks(text, at + word.size());
  if (end == text.size() || (text[end] != '=' && text[end] != ':')) return 0;
  if (!IsOneOf(subject, kSubjects)) return 0;
  end = PassBlanks(text, end + 1);
  while (end < text.size() && (IsLogDigit(text[end]) || text[end] == '.')) ++end;
  const size_t unit = PassBlanks(text, end);
  size_t after = unit;
  while (after < text.size() && IsLogLetter(text[after])) ++after;
  return IsOneOf(text.substr(unit, after - unit), kUnits) ? 0 : subject.size();
}

// True if a word at `at` may name the step: "global_step", but not "max_steps" or "s/step".
bool FitsBefore(std::string_view text, size_t at, std::string_view word) {
  if (word == "it" || word == "update") {
    const size_t end = at + word.size();
    const bool valued = end < text.size() && (text[end] == '=' || text[end] == ':');
    const bool apart = at == 0 || !(IsNameByte(text[at - 1]) || text[at - 1] == '/');
    return apart && (BeginsPart(text, at) || valued);
  }
  if (at == 0) {
    const size_t end = at + word.size();
    return word != "updates" || (end < text.size() && text[end] == ':');
  }
  const char before = text[at - 1];
  if (before == '_') {
    size_t begin = at;
    while (begin > 0 && IsNameByte(text[begin - 1])) --begin;
    const std::string_view joined = text.substr(begin, at - begin);
    if (word == "updates") return joined == "num_";
    return IsOneOf(joined, kJoinedBefore);
  }
  if (before == '/' && SubjectBefore(text, at, word) > 0) return true;
  if (word == "updates" || IsNameByte(before) || before == '/') return false;
  if (before == '-' && at > 1 && text[at - 2] == '-') return false;  // an option: "--steps 100"
  return before != ' ' || !IsLimitBefore(text, at);
}

// Returns true if a number may end at `at`.
bool EndsCount(std::string_view text, size_t at) {
  if (at == text.size()) return true;
  const char next = at + 1 < text.size() ? text[at + 1] : ' ';
  switch (text[at]) {
    case ' ':
    case '\t':
    case '|':
    case ']':
    case ')':
    case ';':
    case ',':
    case '{':
      return true;
    case ':':
      return !IsLogDigit(next);
    case '-':
      return next == ' ';
    case '.':
      return !IsLogDigit(next);
    default:
      return false;
  }
}

// Reads a whole number "1.000e+03" or "405.0". Returns its end; `at` if there is none.
size_t ReadWholeNumber(std::string_view text, size_t at, int64_t* count) {
  constexpr double kMost = 1e15;
  double value = 0;
  const char* const from = text.data() + at;
  const char* const stop = ScanNumber(from, text.data() + text.size(), &value);
  const std::string_view number(from, static_cast<size_t>(stop - from));
  const bool marked = number.find('e') != number.npos || number.ends_with(".0");
  if (!marked || !IsWhole(value) || value < 0 || value > kMost) return at;
  *count = static_cast<int64_t>(value);
  return at + number.size();
}

// Reads the number after the word that ends at `at`. Returns false if there is none.
bool ReadStep(std::string_view text, size_t at, LogMark* mark) {
  at = PassBlanks(text, PassPhase(text, at, mark));
  // Flax's examples: "Step... (100 | Loss: 2.3".
  if (text.substr(at, 5) == "... (") at += 5;
  if (at + 1 < text.size() && text[at] == '#' && text[at + 1] == ':') ++at;  // dlib's "step#: 100"
  if (at < text.size() && (text[at] == ':' || text[at] == '=' || text[at] == '#'))
    at = PassBlanks(text, at + 1);
  const bool bracket = at < text.size() && text[at] == '[';
  if (bracket) at = PassBlanks(text, at + 1);
  const size_t number = at;
  at = ReadLogCount(text, at, &mark->step);
  if (at == number) return false;
  if (at < text.size() && (text[at] == '.' || text[at] == 'e')) {
    const size_t end = ReadWholeNumber(text, number, &mark->step);
    if (end != number) at = end;
  }
  size_t slash = PassBlanks(text, at);
  if (slash < text.size() && text[slash] == '/') {
    const size_t total = PassBlanks(text, slash + 1);
    const size_t end = ReadLogCount(text, total, &mark->total);
    if (end == total) return false;
    at = end;
  }
  if (bracket) {
    slash = PassBlanks(text, at);
    if (slash == text.size() || text[slash] != ']') return false;
    at = slash + 1;
  }
  if (!EndsCount(text, at)) return false;
  mark->end = at;
  return true;
}

// Matches the rest of a line after a step in brackets: "]", ",epoch=0,eta=0:10:00]".
bool EndsInBracket(std::string_view text, size_t at) {
  const size_t close = text.find_last_not_of(" \t");
  if (at >= text.size() || close == std::string_view::npos || close < at || text[close] != ']')
    return false;
  return (close == at || text[at] == ',') && text.find_first_of("[]{}", at) == close;
}

// Reads "[step_30]" or "step-30 loss 2.5".
std::optional<LogMark> JoinedStepAt(std::string_view text, size_t at) {
  constexpr std::string_view kStep = "step";
  static constexpr std::string_view kEnds = " \t]|,:";
  const size_t number = at + kStep.size() + 1;
  if (number >= text.size() || (text[number - 1] != '_' && text[number - 1] != '-') ||
      !IsLogDigit(text[number]) || !HasWordAt(text.substr(0, number - 1), at, kStep))
    return std::nullopt;
  if (at > 0 && std::string_view(" \t[(|").find(text[at - 1]) == std::string_view::npos)
    return std::nullopt;
  LogMark mark;
  mark.begin = at;
  mark.end = ReadLogCount(text, number, &mark.step);
  const bool ends = mark.end < text.size() && kEnds.find(text[mark.end]) != std::string_view::npos;
  return ends ? std::optional(mark) : std::nullopt;
}

std::optional<LogMark> StepAt(std::string_view text, size_t at) {
  // The second letter decides quickly: "it", "st", "up" and so on.
  const char second = at + 1 < text.size() ? Small(text[at + 1]) : ' ';
  if (second != 't' && second != 'p') return std::nullopt;
  for (const std::string_view word : kMarkWords) {
    if (Small(text[at]) != word[0] || !HasWordAt(text, at, word) || !FitsBefore(text, at, word))
      continue;
    LogMark mark;
    mark.begin = at;
    if (!ReadStep(text, at + word.size(), &mark)) return JoinedStepAt(text, at);
    if (at > 0 && text[at - 1] == '/') {
      mark.subject = SubjectBefore(text, at, word);
      mark.begin = at - 1 - mark.subject;
    }
    const bool opened = at > 0 && text[at - 1] == '[';
    mark.alone = opened && EndsInBracket(text, mark.end);
    mark.batches = word == "step_in_epoch";
    return mark;
  }
  return JoinedStepAt(text, at);
}

// Returns the bytes at which a mark may begin.
constexpr std::array<bool, 256> MarkBytes() {
  std::array<bool, 256> bytes{};
  for (const char c : {'s', 'S', 'i', 'I', 'u', 'U', '{', '%'})
    bytes[static_cast<uint8_t>(c)] = true;
  return bytes;
}
constexpr std::array<bool, 256> kMarkBytes = MarkBytes();

bool IsBefore(char c) { return !IsLogLetter(c) && !IsLogDigit(c); }

// Returns the number after the whole word `word` in the text; -1 if there is none.
int64_t LogCountAfter(std::string_view text, std::string_view word) {
  const auto next = [&](size_t from) {
    return std::min(text.find(word[0], from), text.find(static_cast<char>(word[0] - 32), from));
  };
  for (size_t at = next(0); at < text.size() && at + word.size() < text.size(); at = next(at + 1)) {
    if (at > 0 && !IsBefore(text[at - 1])) continue;
    bool same = true;
    for (size_t i = 1; i < word.size() && same; ++i) same = Small(text[at + i]) == word[i];
    if (!same) continue;
    size_t digits = at + word.size();
    while (digits < text.size() && std::strchr(" :=[#", text[digits]) != nullptr &&
           text[digits] != '\0')
      ++digits;
    int64_t count = 0;
    if (ReadLogCount(text, digits, &count) > digits) return count;
  }
  return -1;
}

// If the line has several steps, returns the global one: "STEP: 25/400 -- GLOBAL_STEP: 825".
LogMark GlobalOf(std::string_view line, const LogMark& first) {
  constexpr std::string_view kRest = "lobal";
  const auto is_global = [&](size_t at) {
    if (Small(line[at - 1]) != 'g' || (at > 1 && IsNameByte(line[at - 2]))) return false;
    for (size_t i = 0; i < kRest.size(); ++i) {
      if (Small(line[at + i]) != kRest[i]) return false;
    }
    const char after = line[at + kRest.size()];
    return after == '_' || after == ' ';
  };
  // Searches for 'b', the rarest letter of the word.
  for (const char b : {'b', 'B'}) {
    for (size_t at = line.find(b, first.end); at < line.size(); at = line.find(b, at + 1)) {
      if (at < first.end + 4 || at + 4 >= line.size() || !is_global(at - 2)) continue;
      if (const std::optional<LogMark> mark = StepAt(line, at + 4)) return *mark;
    }
  }
  return first;
}

// If the line has a micro-batch and a step, returns the step: "iter 564 step 141".
LogMark OptimizerOf(std::string_view line, const LogMark& first) {
  const size_t next = PassBlanks(line, first.end);
  if (Small(line[first.begin]) != 'i' || !HasWordAt(line, std::min(next, line.size()), "step"))
    return first;
  return StepAt(line, next).value_or(first);
}

}  // namespace

std::optional<LogMark> FindMark(std::string_view line) {
  for (size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    if (!kMarkBytes[static_cast<uint8_t>(c)]) continue;
    const char next = at + 1 < line.size() ? line[at + 1] : ' ';
    if (c == '{') {
      // An empty dictionary may be within a tuple: "(1, 2.5, {}, 3.2)".
      const bool empty = next == '}' && at > 2 && line.substr(at - 2, 4) == ", {}";
      if (next == '\'' || next == '"' || empty) return LogMark{LogMark::Kind::kDictionary, at, at};
    } else if (c == '%') {
      if (next == '|') return LogMark{LogMark::Kind::kBar, at, at};
    } else if (at == 0 || !IsLogLetter(line[at - 1])) {
      if (const std::optional<LogMark> mark = StepAt(line, at))
        return GlobalOf(line, OptimizerOf(line, *mark));
    }
  }
  return std::nullopt;
}

size_t ReadLabel(std::string_view line, int64_t* label) {
  const size_t at = PassBlanks(line, 0);
  const size_t end = ReadLogCount(line, at, label);
  return end > at && line.substr(end, 2) == ": " ? end + 2 : 0;
}

int64_t RankInPrefix(std::string_view prefix) {
  constexpr int64_t kMostRank = 1 << 20;
  int64_t rank = -1;
  if (ReadLabel(prefix, &rank) == 0) rank = LogCountAfter(prefix, "rank");
  // torchrun --tee: "[default3]:..."
  if (rank < 0 && prefix.starts_with('[')) {
    rank = LogCountAfter(prefix.substr(0, 24), "default");
    if (rank < 0) rank = LogCountAfter(prefix.substr(0, 24), "trainer");
  }
  return rank <= kMostRank ? rank : -1;
}

int64_t EpochInPrefix(std::string_view prefix) { return LogCountAfter(prefix, "epoch"); }
int64_t TaskInPrefix(std::string_view prefix) { return LogCountAfter(prefix, "task"); }

bool IsEvaluationPrefix(std::string_view prefix) {
  static constexpr std::string_view kWords[] = {"validation", "validating", "valid", "evaluation",
                                                "evaluating", "eval",       "val"};
  constexpr size_t kNear = 40;
  if (prefix.size() > kNear) prefix.remove_prefix(prefix.size() - kNear);
  for (size_t at = 0; at < prefix.size(); ++at) {
    if (Small(prefix[at]) != 'v' && Small(prefix[at]) != 'e') continue;
    if (at > 0 && std::strchr(" [(|:<", prefix[at - 1]) == nullptr) continue;
    for (const std::string_view word : kWords) {
      if (!HasWordAt(prefix, at, word)) continue;
      const size_t end = at + word.size();
      // The rank must not be part of a path, a host or a file.
      if (end == prefix.size() || std::strchr(" ])|:>", prefix[end]) != nullptr) return true;
    }
  }
  return false;
}

bool IsEvaluationHead(std::string_view head) {
  constexpr size_t kLongest = 24;
  head.remove_prefix(std::min(head.size(), head.find_first_not_of(" \t-")));
  if (head.size() > kLongest) return false;
  return HasWordAt(head, 0, "test") || HasWordAt(head, 0, "dev") || IsEvaluationPrefix(head);
}

std::string_view WithoutEscapes(std::string_view line, std::string* scratch) {
  constexpr char kEscape = '\x1b';
  size_t at = line.find(kEscape);
  if (at == std::string_view::npos) return WithoutLostEscapes(line, scratch);
  scratch->clear();
  while (at != std::string_view::npos) {
    scratch->append(line.substr(0, at));
    line.remove_prefix(at + 1);
    // A sequence that begins with '[' has parameters and one letter. Other sequences have one byte.
    size_t end = line.starts_with('[') ? 1 : 0;
    if (end == 1) {
      while (end < line.size() && line[end] >= 0x20 && line[end] < 0x40) ++end;
    }
    line.remove_prefix(std::min(line.size(), end + 1));
    at = line.find(kEscape);
  }
  scratch->append(line);
  return *scratch;
}

}  // namespace plumbline::audit
