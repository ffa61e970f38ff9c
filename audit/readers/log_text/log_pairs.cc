#include "audit/readers/log_text/log_pairs.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_name.h"

namespace plumbline::audit {
namespace {

// Bytes that may precede a number.
constexpr Bytes kBefore(" \t:=[(|,'\"{");

// True if the text may end within the number or its unit, such as "4," of "4,321".
bool MayGoOn(const char* at, const char* end) {
  constexpr std::ptrdiff_t kLongest = 6;
  static constexpr Bytes kDone("|;:=)]}'\"(");
  return end - at < kLongest && std::none_of(at, end, [](char c) { return kDone[c]; });
}

std::string_view LastWord(std::string_view text) {
  const size_t space = text.find_last_of(" \t");
  return space == std::string_view::npos ? text : text.substr(space + 1);
}

// If one of these words precedes or follows "nan" or "inf", the latter is part of a name or of a
// sentence, not a value.
constexpr std::string_view kBeforeWord[] = {
    "of",   "no",  "num", "any", "has", "have", "had",  "found", "became",  "becomes",
    "went", "got", "an",  "the", "or",  "and",  "with", "for",   "contains"};
constexpr std::string_view kAfterWord[] = {
    "iterations", "iteration",  "iters",       "iter",    "steps",     "count",    "counts",
    "values",     "value",      "losses",      "grads",   "gradients", "elements", "entries",
    "params",     "parameters", "batches",     "tokens",  "samples",   "checks",   "check",
    "detected",   "found",      "encountered", "skipped", "skips",     "skipping", "ratio",
    "fraction",   "number",     "in",          "at",      "on",        "for",      "after",
    "by",         "since",      "during",      "while",   "and",       "or",       "is",
    "was",        "again",      "so",          "because", "from"};

template <size_t N>
bool IsAnyOf(std::string_view word, const std::string_view (&words)[N]) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

// In "number of nan iterations: 0", the word is part of a name. In "loss nan lr 0.1", it is the
// value.
bool IsWordOfName(std::string_view before, const char* after, const char* end) {
  static constexpr Bytes kLead(" \t,;|:");
  if (end - after < 2 || *after != ' ' || !IsPairLetter(after[1])) return false;
  if (const std::string_view whole = before; AfterSign(whole.data(), whole.data() + whole.size()))
    return false;
  Trim(&before, kLead, kSpaces);
  if (before.empty()) return false;
  const char* next = after + 1;
  const char* stop = next;
  while (stop != end && IsPairLetter(*stop)) ++stop;
  return IsAnyOf(LastWord(before), kBeforeWord) ||
         IsAnyOf({next, static_cast<size_t>(stop - next)}, kAfterWord);
}

// Text that libraries print before a number: "tensor(", "np.float32(", "Array([".
constexpr std::string_view kWrappers[] = {
    "tensor",  "Tensor",   "array",   "Array",   "DeviceArray", "float16",  "float32",
    "float64", "bfloat16", "Float16", "Float32", "Float64",     "Parameter"};

// Returns the wrapper that ends at `at`, with its dotted prefix; empty if there is none.
std::string_view WrapperBefore(const char* from, const char* at) {
  const char* begin = at;
  while (begin != from && (IsPairLetter(begin[-1]) || IsPairDigit(begin[-1]) || begin[-1] == '.'))
    --begin;
  const std::string_view whole(begin, static_cast<size_t>(at - begin));
  const size_t dot = whole.rfind('.');
  const std::string_view word = dot == std::string_view::npos ? whole : whole.substr(dot + 1);
  return IsAnyOf(word, kWrappers) ? whole : std::string_view();
}

// Returns the byte after the parenthesis that closes the one at `open`; `end` if there is none.
const char* CloseOf(const char* open, const char* end) {
  constexpr std::ptrdiff_t kMost = 4096;
  const char* to = open + std::min(end - open, kMost);
  int depth = 0;
  for (const char* at = open; at != to; ++at) {
    if (*at == '(') ++depth;
    if (*at == ')' && --depth == 0) return at + 1;
  }
  return end;
}

// True if a sign follows the closing parenthesis at `at`.
bool ClosesName(const char* at, const char* end) {
  return end - at > 1 && *at == ')' && kSigns[at[1]];
}

// Returns true for a series in parentheses: "(Cur. train loss: 2.5)". It is not a remark on the
// number before it.
bool HoldsSeries(std::string_view inside) {
  const size_t sign = inside.find_first_of(":=");
  if (sign == std::string_view::npos || sign < 4) return false;
  std::string_view name = inside.substr(0, sign);
  Trim(&name, kSpaces, kSpaces);
  return IsPairLetter(inside[0]) && HasTrainingWord(name);
}

// True for the duration in "cost 12.3 s".
bool IsTimeCost(std::string_view name, std::string_view unit) {
  static constexpr std::string_view kTimes[] = {"s", "sec", "secs", "seconds", "ms", "min", "h"};
  return (name == "cost" || name == "Cost") && IsAnyOf(unit, kTimes);
}

constexpr Bytes kEnds("|;,");
constexpr Bytes kStops("0123456789+-.nNiI|;,()[]<\xE2");

}  // namespace

// Reads "12s" of "3m 12s", sets *minutes to the sum in seconds, and returns the end. If no seconds
// follow, returns `from` and changes nothing.
static const char* AddSeconds(const char* from, const char* to, double* minutes) {
  double seconds = 0;
  if (to - from < 3 || *from != ' ' || !IsPairDigit(from[1])) return from;
  const char* stop = ScanNumber(from + 1, to, &seconds);
  if (stop == to || *stop != 's') return from;
  *minutes = 60 * *minutes + seconds;
  return stop + 1;
}

// Reads the number that may begin at at_. If there is none, skips the text at at_.
bool LogPairs::TryNumber(LogPair* pair) {
  double value = 0;
  const char* stop = at_;
  if (decimals_ == Decimals::kComma) stop = ScanCommaDecimal(at_, end_, &value);
  if (stop == at_) stop = ScanGrouped(at_, end_, &value);
  if (stop == at_) {
    if (TakeAbsent(pair)) return true;
    ++at_;
    return false;
  }
  value = SignedZero({at_, static_cast<size_t>(stop - at_)}, value);
  stop = PassOtherPower(stop, end_, &value);
  // "LR (group 0)=3e-4"; "(loss: 2.5): 3%" is a value.
  if (ClosesName(stop, end_) && !AfterSign(name_, at_)) {
    at_ = stop;
    return false;
  }
  const char* unit = PassSpread(stop, end_);
  const char* unit_end = UnitEnd(unit, end_);
  const std::string_view tight(unit, static_cast<size_t>(unit_end - unit));
  const bool sign = *at_ == '-' || *at_ == '+';
  const bool word = IsPairLetter(*at_) || (sign && at_ + 1 != end_ && IsPairLetter(at_[1]));
  const UnitOf* known = FindUnit(tight);
  const bool fits = MayStandAfter(unit_end, end_) && tight.size() <= 24 &&
                    (!word || tight.empty() || known != nullptr);
  // Words such as "INFO" and "nanogpt" are not numbers.
  if (word && stop != end_ && IsPairLetter(*stop) && known == nullptr) {
    for (++at_; at_ != end_ && IsPairLetter(*at_);) ++at_;
    return false;
  }
  if (word && IsWordOfName({name_, static_cast<size_t>(at_ - name_)}, unit_end, end_)) {
    at_ = unit_end;
    return false;
  }
  // In "3/10", "2.5/2.75" and "nan/nan", the first number is the value.
  const char* total = unit_end;
  bool ratio = false;
  if (!fits && stop != end_ && *stop == '/' && stop + 1 != end_ && !IsSpaceByte(stop[1])) {
    double second = 0;
    total = ScanNumber(stop + 1, end_, &second);
    ratio = total != stop + 1 && MayStandAfter(total, end_);
  }
  pair->value = value;
  pair->limit = 0;
  pair->absent = false;
  const bool limited =
      known == nullptr ? tight.find('/') != std::string_view::npos : known->factor >= 1000;
  if (!word && limited && TakeLimit(stop, pair)) return true;
  if (!fits && !ratio) {
    // The text is a time, a date or a version. If a sign precedes it, the next name begins after
    // it.
    const bool valued = at_ != begin_ && (kSigns[at_[-1]] || (at_ - begin_ > 1 && kSigns[at_[-2]]));
    while (at_ != end_ && !IsSpaceByte(*at_) && *at_ != '|' && *at_ != ',') ++at_;
    if (valued) name_ = at_;
    return false;
  }
  pair->after_sign = AfterSign(name_, at_);
  pair->at_end = MayGoOn(ratio ? total : unit_end, end_);
  pair->group = group_;
  pair->named_after = false;
  const std::string_view before(name_, static_cast<size_t>(at_ - name_));
  const LogNames::Name name = names_->Of(before);
  const bool nameless = name.name.empty() && std::all_of(before.begin(), before.end(), [](char c) {
                          static constexpr Bytes kParting(" \t|;,:");
                          return kParting[c];
                        });
  if (name.name.empty() && pair->after_sign && !nameless) Refuse(before);
  const bool listed = at_ != begin_ && at_[-1] == '[';
  at_ = ratio ? total : unit_end;
  if (tight == "m") at_ = AddSeconds(at_, end_, &pair->value);
  // In "250.0 ms", a space precedes the unit.
  if (!ratio && tight.empty() && end_ - at_ > 1 && *at_ == ' ') {
    const char* far = UnitEnd(at_ + 1, end_);
    const UnitOf* after = FindUnit({at_ + 1, static_cast<size_t>(far - at_ - 1)});
    static constexpr Bytes kAfterUnit(" ,;|)]");
    const bool sentence = far != end_ && *far == '.' && (far + 1 == end_ || IsSpaceByte(far[1]));
    if (after != nullptr && (far == end_ || kAfterUnit[*far] || sentence)) {
      known = after;
      at_ = far;
    }
  }
  // "Losses: [2.3, 2.5]" is a list of losses without a total.
  if (listed && name.name.ends_with("osses") && at_ != end_ && *at_ == ',') {
    const char* const after = at_;
    list_ = name.name;
    listed_ = 0;
    at_ = before.data() + before.size();
    if (TakeListed(pair)) return true;
    Refuse(before);
    at_ = name_ = after;
    return false;
  }
  name_ = at_;
  if (known != nullptr && !ratio) pair->value *= known->factor;
  if (nameless && name_ != begin_ && !ratio && (known == nullptr || known->name == "%"))
    return TakeNameAfter(pair);
  pair->name = name.name;
  if (known != nullptr && !ratio && IsTimeCost(name.name, known->name)) pair->name = "cost time";
  pair->value *= name.factor;
  return !name.name.empty();
}

// Takes the next value of list_. Returns false at its end.
bool LogPairs::TakeListed(LogPair* pair) {
  static constexpr std::string_view kNames[] = {"[0]",  "[1]",  "[2]",  "[3]", "[4]",  "[5]",
                                                "[6]",  "[7]",  "[8]",  "[9]", "[10]", "[11]",
                                                "[12]", "[13]", "[14]", "[15]"};
  static constexpr Bytes kBetween(" ,");
  const char* from = at_;
  while (from != end_ && kBetween[*from]) ++from;
  const char* const stop = ScanNumber(from, end_, &pair->value);
  const bool ends = stop != end_ && (*stop == ',' || *stop == ']');
  if (stop == from || !ends || listed_ == std::size(kNames)) {
    list_ = {};
    name_ = at_;
    return false;
  }
  pair->name = kNames[listed_++];
  pair->group = list_;
  pair->limit = 0;
  pair->after_sign = true;
  pair->named_after = pair->absent = pair->at_end = false;
  at_ = name_ = stop;
  return true;
}

// Takes a number of bytes that ends at `stop` and the limit after it. If there is no limit or no
// name, returns false and changes nothing.
bool LogPairs::TakeLimit(const char* stop, LogPair* pair) {
  double use = pair->value, limit = 0;
  const char* end = ScanLimit(stop, end_, &use, &limit);
  if (end == stop || !MayStandAfter(end, end_)) return false;
  const LogNames::Name name = names_->Of({name_, static_cast<size_t>(at_ - name_)});
  if (name.name.empty()) return false;
  pair->name = name.name;
  pair->value = use;
  pair->limit = limit;
  pair->after_sign = AfterSign(name_, at_);
  pair->at_end = MayGoOn(end, end_);
  pair->group = group_;
  pair->named_after = false;
  at_ = name_ = end;
  return true;
}

void LogPairs::Refuse(std::string_view text) {
  static constexpr Bytes kAround(" \t,;|:=");
  Trim(&text, kAround, kAround);
  const bool word = std::any_of(text.begin(), text.end(), IsPairLetter);
  if (!word || IsSourceFile(text)) return;
  if (refused_++ == 0) first_refused_ = text;
}

bool LogPairs::TakeNameAfter(LogPair* pair) {
  pair->name = NameAfter(at_, end_);
  if (pair->name.empty()) return false;
  at_ = name_ = pair->name.data() + pair->name.size();
  pair->after_sign = pair->named_after = true;
  return true;
}

// Takes a bracket: "tot_loss[loss=0.5, " opens a group, and the closing bracket ends it.
void LogPairs::TakeGroup() {
  if (*at_ == ']') {
    if (!group_.empty()) name_ = at_ + 1;
    group_ = {};
    return;
  }
  if (!group_.empty() || at_ == begin_ || end_ - at_ < 2 || !IsPairLetter(at_[1])) return;
  const char* first = at_;
  while (first != name_ && (IsPairLetter(first[-1]) || IsPairDigit(first[-1]) || first[-1] == '_'))
    --first;
  if (first == at_ || !IsPairLetter(*first)) return;
  group_ = {first, static_cast<size_t>(at_ - first)};
  name_ = at_ + 1;
}

// Takes the parenthesis of "losses = (train: 2.5, val: 2.6)", which opens a group.
bool LogPairs::TakeTuple() {
  static constexpr Bytes kTail(" \t:=");
  std::string_view name(name_, static_cast<size_t>(at_ - name_));
  Trim(&name, kSpaces, kSpaces);
  const bool valued = !name.empty() && kSigns[name.back()];
  Trim(&name, kTail, kTail);
  const bool losses = name == "losses" || name == "Losses" || name == "loss" || name == "Loss";
  if (!losses || !valued || end_ - at_ < 2 || !IsPairLetter(at_[1])) return false;
  group_ = name;
  name_ = ++at_;
  return tuple_ = true;
}

// Skips parentheses directly after a value, because they are a remark on it.
bool LogPairs::PassParentheses() {
  constexpr std::ptrdiff_t kMost = 64;
  for (const char* p = name_; p != at_; ++p) {
    if (!IsSpaceByte(*p)) return false;
  }
  if (name_ == begin_ || kEnds[name_[-1]]) return false;
  const auto room = std::min(end_ - at_, kMost);
  const void* close = std::memchr(at_, ')', static_cast<size_t>(room));
  if (close == nullptr || HoldsSeries({at_ + 1, static_cast<const char*>(close)})) return false;
  at_ = name_ = static_cast<const char*>(close) + 1;
  return true;
}

// Takes the parenthesis of "loss=tensor(2.3, device=...)". The first number in it is the value; the
// rest is skipped.
bool LogPairs::TryWrapped(LogPair* pair) {
  const std::string_view wrapper = WrapperBefore(name_, at_);
  if (wrapper.empty() || wrapper.data() == name_) return false;
  const char* first = at_ + 1;
  while (first != end_ && (*first == '[' || IsSpaceByte(*first))) ++first;
  const char* stop = ScanNumber(first, end_, &pair->value);
  static constexpr Bytes kAfter(" ,.)]");  // Python prints "2." for a whole number
  if (stop == first || (stop != end_ && !kAfter[*stop])) return false;
  pair->named_after = pair->absent = false;
  pair->limit = 0;
  pair->after_sign = AfterSign(name_, wrapper.data());
  pair->at_end = MayGoOn(stop, end_);
  pair->group = group_;
  const LogNames::Name name = names_->Of({name_, static_cast<size_t>(wrapper.data() - name_)});
  pair->name = name.name;
  pair->value *= name.factor;
  at_ = name_ = CloseOf(at_, end_);
  return !name.name.empty();
}

// Called at the '|' of "train CrossEntropyLoss |  2.5". Returns true if the part before it is a
// name, and the part after it is only a number.
bool LogPairs::NamesNext() const {
  std::string_view part(name_, static_cast<size_t>(at_ - name_));
  static constexpr Bytes kFront(" \t:");
  Trim(&part, kFront, kSpaces);
  if (part.empty() || !IsPairLetter(part[0]) || !HasTrainingWord(part)) return false;
  const char* number = at_ + 1;
  while (number != end_ && IsSpaceByte(*number)) ++number;
  double value = 0;
  const char* stop = ScanNumber(number, end_, &value);
  if (stop == number) return false;
  while (stop != end_ && IsSpaceByte(*stop)) ++stop;
  return stop == end_ || *stop == '|';
}

bool LogPairs::Next(LogPair* pair) {
  if (!list_.empty() && TakeListed(pair)) return true;
  while (at_ != end_) {
    const char c = *at_;
    if (!kStops[c]) {
      ++at_;
    } else if (kEnds[c]) {
      const bool names = c == '|' && NamesNext();
      ++at_;
      if (!names) name_ = at_;
    } else if (c == '[' || c == ']') {
      if (TakeSum(pair)) return true;
      TakeGroup();
      ++at_;
    } else if (c == '<') {
      const char* open = at_;
      if (TakeTensor(pair)) return true;
      if (at_ == open) ++at_;
    } else if (c == ')') {
      if (std::exchange(tuple_, false)) group_ = {};
      ++at_;
    } else if (c == '(') {
      const char* open = at_;
      if (TryWrapped(pair)) return true;
      if (at_ == open && !TakeTuple() && !PassParentheses()) ++at_;
    } else if (at_ != begin_ && !kBefore[at_[-1]]) {
      if (TakeJoined(pair)) return true;
      ++at_;
    } else if (TryNumber(pair)) {
      return true;
    }
  }
  return false;
}

}  // namespace plumbline::audit
