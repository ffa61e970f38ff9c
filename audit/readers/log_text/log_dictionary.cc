#include "audit/readers/log_text/log_dictionary.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/log_text/log_words.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_name.h"

namespace plumbline::audit {
namespace {

constexpr Bytes kBrackets(" \t[]");

}  // namespace

bool LogDictionary::Read(std::string_view text) {
  text_ = text;
  at_ = 0;
  name_.clear();
  members_.clear();
  absent_.clear();
  lists_.clear();
  others_ = 0;
  label_.clear();
  const bool whole = ReadValue(0);
  if (!label_.empty()) NameByLabel();
  return whole;
}

// Names the value by the key in MLPerf's {"key": "train_loss", "value": 2.5}.
void LogDictionary::NameByLabel() {
  const auto value = std::find_if(members_.begin(), members_.end(),
                                  [](const Member& member) { return member.name == "value"; });
  if (value != members_.end()) value->name = label_;
}

// Takes DLLogger's "step": [0, 850], which is an epoch and a step; [] marks a summary.
void LogDictionary::TakeList(std::string_view value, bool at_end) {
  if (StepNameRank(name_) < 0 || IsEpochName(name_)) {
    const size_t first = value.find_first_not_of("[( ");
    const bool number = first != value.npos && (IsPairDigit(value[first]) || value[first] == 'n');
    if (number && lists_.size() < kMostMembers) lists_.push_back(name_);
    return;
  }
  constexpr size_t kMostCounts = 2;
  int64_t counts[kMostCounts] = {};
  size_t size = 0;
  for (size_t at = 1; at < value.size() && size < kMostCounts;) {
    const size_t end = ReadLogCount(value, at, &counts[size]);
    if (end == at) break;
    ++size;
    at = std::min(value.find_first_not_of(", ", end), value.size());
  }
  if (size == 0) return;
  Add(static_cast<double>(counts[size - 1]), at_end);
  if (size == kMostCounts && members_.size() < kMostMembers)
    members_.push_back({"epoch", static_cast<double>(counts[0]), at_end});
}

void LogDictionary::PassSpaces() {
  while (at_ < text_.size() && IsSpaceByte(text_[at_])) ++at_;
}

void LogDictionary::Add(double value, bool at_end) {
  if (members_.size() < kMostMembers) members_.push_back({name_, value, at_end});
}

bool LogDictionary::PassText(std::string_view* inside) {
  const char quote = text_[at_];
  const size_t begin = ++at_;
  while (at_ < text_.size() && text_[at_] != quote) at_ += text_[at_] == '\\' ? 2 : 1;
  if (at_ >= text_.size()) {
    at_ = text_.size();
    return false;
  }
  *inside = text_.substr(begin, at_ - begin);
  ++at_;
  return true;
}

// Reads a key and its colon, and appends the key to the name.
bool LogDictionary::ReadKey() {
  static constexpr Bytes kAfterKey(":,{}[]'\"");
  PassSpaces();
  if (at_ == text_.size()) return false;
  std::string_view key;
  if (text_[at_] == '\'' || text_[at_] == '"') {
    if (!PassText(&key)) return false;
  } else {
    const size_t begin = at_;
    while (at_ < text_.size() && !kAfterKey[text_[at_]]) ++at_;
    key = text_.substr(begin, at_ - begin);
  }
  PassSpaces();
  if (at_ == text_.size() || text_[at_] != ':') return false;
  ++at_;
  if (!name_.empty()) name_ += '/';
  name_.append(key.substr(0, kMostNameBytes));
  return true;
}

// At depth 0 only a dictionary is accepted.
bool LogDictionary::ReadValue(size_t depth) {
  PassSpaces();
  if (at_ == text_.size()) return false;
  if (text_[at_] != '{') return depth > 0 && ReadOther();
  if (depth == kMostDepth) return false;
  ++at_;
  const size_t length = name_.size();
  PassSpaces();
  if (at_ < text_.size() && text_[at_] == '}') {
    ++at_;
    return true;
  }
  while (ReadKey() && ReadValue(depth + 1)) {
    name_.resize(length);
    PassSpaces();
    if (at_ == text_.size()) return false;
    if (text_[at_] == '}') {
      ++at_;
      return true;
    }
    if (text_[at_] != ',') return false;
    ++at_;
  }
  return false;
}

// Reads `'global_step/max_steps': '755/1000'` or `"step": "1,000"`.
std::optional<int64_t> LogDictionary::QuotedStep(std::string_view value) const {
  if (value.size() < 3 || (value.front() != '\'' && value.front() != '"')) return std::nullopt;
  return StepNameRank(name_) >= 0 ? CountIn(value.substr(1, value.size() - 2)) : std::nullopt;
}

// Reads the number in "<tf.Tensor: shape=(), dtype=float32, numpy=2.3>". Returns false for any
// other text.
bool LogDictionary::ReadTensor() {
  constexpr std::string_view kValue = "numpy=";
  const std::string_view rest = text_.substr(at_);
  const size_t close = rest.find('>');
  if (!rest.starts_with("<tf.") || close == std::string_view::npos) return false;
  const size_t value = rest.substr(0, close).find(kValue);
  at_ += close + 1;
  if (value == std::string_view::npos) return true;
  const size_t begin = value + kValue.size();
  if (const std::optional<double> number = NumberOf(rest.substr(begin, close - begin)))
    Add(*number, false);
  return true;
}

// Reads a number, a text, a word, a list, or "tensor(2.3, device='cuda:0')", up to the comma or
// brace that ends it.
bool LogDictionary::ReadOther() {
  if (text_[at_] == '<' && ReadTensor()) return true;
  const size_t begin = at_;
  // Most values are a plain number.
  double alone = 0;
  const char* const from = text_.data() + at_;
  const char* const to = text_.data() + text_.size();
  const char* const stop = ScanNumber(from, to, &alone);
  if (stop != from && stop != to && (*stop == ',' || *stop == '}')) {
    const auto size = static_cast<size_t>(stop - from);
    Add(SignedZero({from, size}, alone), false);
    at_ += size;
    return true;
  }
  size_t open = 0;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    std::string_view inside;
    if (c == '\'' || c == '"') {
      if (!PassText(&inside)) return false;
      continue;
    }
    if (c == '(' || c == '[' || c == '{') ++open;
    if (open == 0 && (c == ',' || c == '}')) break;
    if ((c == ')' || c == ']' || c == '}') && open > 0) --open;
    ++at_;
  }
  std::string_view value = text_.substr(begin, at_ - begin);
  const bool at_end = at_ == text_.size();
  Trim(&value, kSpaces, kSpaces);
  // In a scalar of a library, the value comes first in the parentheses.
  const size_t parenthesis = value.find('(');
  if (parenthesis != std::string_view::npos && IsPairLetter(value.front())) {
    const std::string_view within = value.substr(parenthesis + 1);
    if (within.starts_with('[') && within.find(',') < within.find(']')) {
      TakeList(within, at_end);
      ++others_;
      return true;
    }
    value = value.substr(parenthesis + 1, value.find_first_of(",)", parenthesis) - parenthesis - 1);
    Trim(&value, kBrackets, kBrackets);
  }
  if (const std::optional<double> number = NumberOf(value)) {
    // transformers prints '0' by %.4g.
    const bool quoted = value == "'0'" || value == "\"0\"";
    Add(SignedZero(quoted ? "0" : value, *number), at_end);
  } else if (const std::optional<int64_t> step = QuotedStep(value)) {
    Add(static_cast<double>(*step), at_end);
    const size_t slash = value.find('/');
    if (slash != std::string_view::npos && !members_.empty())
      members_.back().total =
          NumberOf(value.substr(slash + 1, value.size() - slash - 2)).value_or(0);
  } else {
    TakeOther(value, at_end);
  }
  return true;
}

// Takes a text, a word or a list.
void LogDictionary::TakeOther(std::string_view value, bool at_end) {
  static constexpr Bytes kOpens("'\"[");
  static constexpr std::string_view kLabels[] = {"key", "metric", "name", "tag"};
  const bool label = value.size() > 2 && value.size() < kMostNameBytes && value[0] != '[' &&
                     std::find(std::begin(kLabels), std::end(kLabels), name_) != std::end(kLabels);
  if (label && kOpens[value.front()]) label_ = value.substr(1, value.size() - 2);
  if (value.starts_with('[')) TakeList(value, at_end);
  if ((value == "None" || value == "null") && absent_.size() < kMostMembers)
    absent_.push_back(name_);
  others_ += !value.empty() && kOpens[value.front()] ? 1 : 0;
}

// Returns true if a wrapped line begins with elements of a list.
static bool IsElement(std::string_view text) {
  return IsPairDigit(text[0]) || text[0] == '-' || text.starts_with("nan") ||
         text.starts_with("inf") || text.starts_with("np.") || text.starts_with("tensor(");
}

std::string_view OpenDictionary::Take(std::string_view whole_line) {
  std::string_view line = whole_line;
  while (line.ends_with(' ')) line.remove_suffix(1);
  if (open_.empty()) {
    if (!line.ends_with(',')) return whole_line;
    const size_t brace = std::min(line.find("{'"), line.find("{\""));
    if (brace == std::string_view::npos || line.find('}', brace) != std::string_view::npos)
      return whole_line;
    open_ = line;
    return {};
  }
  // The line may be " 'lr': 0.01}", or elements of a list: "       2.3, nan]),".
  const size_t first = PassBlanks(line, 0);
  const bool quoted = line.starts_with(" '") || line.starts_with(" \"");
  const bool element = first > 0 && first < line.size() && IsElement(line.substr(first));
  if (!(quoted || element) || open_.size() + line.size() > kMostBytes) {
    open_.clear();
    return whole_line;
  }
  open_.append(line);
  if (!line.ends_with('}')) return {};
  whole_ = std::exchange(open_, "");
  return whole_;
}

}  // namespace plumbline::audit
