#include "audit/readers/trainer_log/log_pairs.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "audit/readers/scalars/number_text.h"
#include "audit/readers/trainer_log/log_bytes.h"

namespace plumbline::audit {
namespace {

struct UnitOf {
  std::string_view name;
  double factor;
};
constexpr UnitOf kUnits[] = {{"ns", 1e-9},
                             {"us", 1e-6},
                             {"µs", 1e-6},
                             {"ms", 1e-3},
                             {"msec", 1e-3},
                             {"s", 1},
                             {"sec", 1},
                             {"secs", 1},
                             {"seconds", 1},
                             {"min", 60},
                             {"h", 3600},
                             {"%", 0.01},
                             {"KB", 1e3},
                             {"MB", 1e6},
                             {"GB", 1e9},
                             {"TB", 1e12},
                             {"KiB", 1024.0},
                             {"MiB", 1048576.0},
                             {"GiB", 1073741824.0},
                             {"TiB", 1099511627776.0},
                             {"K", 1e3},
                             {"k", 1e3},
                             {"M", 1e6},
                             {"G", 1e9},
                             {"B", 1e9},
                             {"T", 1e12}};

const UnitOf* FindUnit(std::string_view name) {
  if (name.empty() || name.size() > 7) return nullptr;
  for (const UnitOf& unit : kUnits) {
    if (unit.name[0] == name[0] && unit.name == name) return &unit;
  }
  return nullptr;
}

// Letters, '/', '%' and the micro sign: a unit, known or not.
const char* UnitEnd(const char* from, const char* to) {
  while (from != to && (IsPairLetter(*from) || *from == '/' || *from == '%' ||
                        static_cast<unsigned char>(*from) >= 0x80))
    ++from;
  return from;
}

// A digit in groups of three: "208,000.00".
const char* GroupsEnd(const char* from, const char* to) {
  const char* at = from;
  if (at != to && (*at == '-' || *at == '+')) ++at;
  const char* first = at;
  while (at != to && IsPairDigit(*at)) ++at;
  if (at == first || at - first > 3) return from;
  const char* groups = at;
  while (to - at > 3 && *at == ',' && IsPairDigit(at[1]) && IsPairDigit(at[2]) &&
         IsPairDigit(at[3]) && (to - at == 4 || !IsPairDigit(at[4])))
    at += 4;
  return at == groups ? from : at;
}

// A number, with commas between its thousands or not; `from`: none.
const char* ScanGrouped(const char* from, const char* to, double* value) {
  const char* groups = GroupsEnd(from, to);
  if (groups == from) return ScanNumber(from, to, value);
  char digits[64];
  size_t size = 0;
  const char* at = from;
  while (at != to && size < sizeof digits && (at < groups || IsPairDigit(*at) || *at == '.')) {
    if (*at != ',') digits[size++] = *at;
    ++at;
  }
  const char* stop = ScanNumber(digits, digits + size, value);
  return stop == digits + size ? at : from;
}

// "2,5", "0,0003", "4,51e-05" where commas are the decimal signs; `from`: none.
const char* ScanCommaDecimal(const char* from, const char* to, double* value) {
  const char* at = from;
  if (at != to && (*at == '-' || *at == '+')) ++at;
  const char* first = at;
  while (at != to && IsPairDigit(*at)) ++at;
  if (at == first || to - at < 2 || *at != ',' || !IsPairDigit(at[1])) return from;
  char digits[64];
  const size_t room = std::min<size_t>(static_cast<size_t>(to - from), sizeof digits);
  std::copy_n(from, room, digits);
  digits[at - from] = '.';
  const char* stop = ScanNumber(digits, digits + room, value);
  return from + (stop - digits);
}

// Words that make of what stands before a number a sentence, not a name.
constexpr std::string_view kSentence[] = {"did",      "not",    "was",     "is",     "reached",
                                          "improved", "from",   "than",    "saving", "saved",
                                          "loading",  "loaded", "writing", "wrote",  "to",
                                          "best:",    "until",  "exceeds", "after",  "with",
                                          "because",  "took"};

constexpr int kMostWords = 6;       // of a name with ':' or '=' behind it
constexpr int kMostPlainWords = 3;  // of one without

bool IsSentence(std::string_view name, int most) {
  int words = 0;
  for (size_t at = 0; at < name.size();) {
    if (IsSpaceByte(name[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < name.size() && !IsSpaceByte(name[end])) ++end;
    const std::string_view word = name.substr(at, end - at);
    if (++words > most) return true;
    if (std::find(std::begin(kSentence), std::end(kSentence), word) != std::end(kSentence))
      return true;
    at = end;
  }
  return false;
}

constexpr Bytes kNothing("");
constexpr Bytes kSigns(":=");

// "train.py" of "train.py:52".
bool IsSourceFile(std::string_view text) {
  static constexpr std::string_view kEndings[] = {".py", ".cc", ".cpp", ".cu", ".rs",
                                                  ".go", ".c",  ".h",   ".pyx"};
  return std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](std::string_view ending) { return text.ends_with(ending); });
}

// The name in what stands before a number; empty: it is none.
std::string_view NameIn(std::string_view text) {
  static constexpr Bytes kLead(" \t,;|)]}.-*>:=");
  static constexpr Bytes kOpen(" \t([");
  static constexpr Bytes kQuotes("'\"");
  static constexpr Bytes kTail(" \t:=('\"[");
  static constexpr Bytes kNever("\"{}[]<>\\`;:=");
  Trim(&text, kLead, kOpen);
  const bool parted = !text.empty() && kSigns[text.back()];
  Trim(&text, kQuotes, kTail);
  // "phase: train loss" in front of a colon: a value that is no number, and then the name.
  if (parted) {
    const size_t sign = text.find_last_of(":=");
    if (sign != std::string_view::npos) {
      text.remove_prefix(sign + 1);
      Trim(&text, kSpaces, kNothing);
      const size_t word = text.find_first_of(" \t");
      if (word != std::string_view::npos) text.remove_prefix(word);
      Trim(&text, kLead, kNothing);
    }
  }
  // "1234 samples/sec   Loss": two spaces part columns.
  if (const size_t columns = text.rfind("  "); columns != std::string_view::npos)
    text.remove_prefix(columns + 2);
  if (const size_t tab = text.rfind('\t'); tab != std::string_view::npos)
    text.remove_prefix(tab + 1);
  // "INFO] - loss"
  if (const size_t bracket = text.rfind("] "); bracket != std::string_view::npos) {
    text.remove_prefix(bracket + 1);
    Trim(&text, kLead, kNothing);
  }
  // "00:00:00,123-Speed"
  const size_t digits = text.find_first_not_of("0123456789");
  if (digits != std::string_view::npos && digits > 0 && text[digits] == '-')
    text.remove_prefix(digits + 1);
  if (text.empty() || text.size() > kMostNameBytes) return {};
  bool letter = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    // "valid_0's l2"
    if (c == '\'' && (i == 0 || text.substr(i, 3) != "'s ")) return {};
    if (c < 0x20 || c > 0x7E || kNever[c]) return {};
    letter |= IsPairLetter(c);
  }
  if (IsSourceFile(text)) return {};
  if (!letter || IsSentence(text, parted ? kMostWords : kMostPlainWords)) return {};
  return text;
}

// "elapsed time (ms)" -> "elapsed time", 0.001.
double TakeUnitOf(std::string_view* name) {
  if (!name->ends_with(')')) return 1;
  const size_t open = name->rfind('(');
  if (open == std::string_view::npos || open == 0) return 1;
  const UnitOf* unit = FindUnit(name->substr(open + 1, name->size() - open - 2));
  if (unit == nullptr) return 1;
  *name = name->substr(0, open);
  Trim(name, kNothing, kSpaces);
  return unit->factor;
}

uint64_t HashOf(std::string_view text) {
  constexpr uint64_t kMix = 0x9e3779b97f4a7c15ull;
  uint64_t hash = text.size() * kMix;
  while (!text.empty()) {
    uint64_t word = 0;
    const size_t size = std::min<size_t>(text.size(), 8);
    std::memcpy(&word, text.data(), size);
    hash = (hash ^ word) * kMix;
    hash ^= hash >> 29;
    text.remove_prefix(size);
  }
  return hash;
}

// What may stand in front of a number, and behind it and its unit.
constexpr Bytes kBefore(" \t:=[(|,'\"{");
constexpr Bytes kBehind(" \t,;|)]}'\"(<\r");
bool MayStandBehind(const char* at, const char* end) {
  if (at == end || kBehind[*at]) return true;
  return (*at == '.' || *at == ':') && (at + 1 == end || IsSpaceByte(at[1]));
}

// More of the number or its unit may have stood behind the end of the text: "4," of "4,321".
bool MayGoOn(const char* at, const char* end) {
  constexpr std::ptrdiff_t kLongest = 6;
  static constexpr Bytes kDone("|;:=)]}'\"(");
  return end - at < kLongest && std::none_of(at, end, [](char c) { return kDone[c]; });
}

bool BehindSign(const char* from, const char* at) {
  while (at != from && IsSpaceByte(at[-1])) --at;
  return at != from && kSigns[at[-1]];
}

std::string_view LastWord(std::string_view text) {
  const size_t space = text.find_last_of(" \t");
  return space == std::string_view::npos ? text : text.substr(space + 1);
}

// In front of "nan" or "inf", and behind it, these make it a word of a name or of a sentence.
constexpr std::string_view kBeforeWord[] = {
    "of",   "no",  "num", "any", "has", "have", "had",  "found", "became",  "becomes",
    "went", "got", "an",  "the", "or",  "and",  "with", "for",   "contains"};
constexpr std::string_view kBehindWord[] = {
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

// "number of nan iterations: 0": the word belongs to a name. "loss nan lr 0.1": it is the value.
bool IsWordOfName(std::string_view before, const char* behind, const char* end) {
  static constexpr Bytes kLead(" \t,;|:");
  if (end - behind < 2 || *behind != ' ' || !IsPairLetter(behind[1])) return false;
  if (const std::string_view whole = before; BehindSign(whole.data(), whole.data() + whole.size()))
    return false;
  Trim(&before, kLead, kSpaces);
  if (before.empty()) return false;
  const char* next = behind + 1;
  const char* stop = next;
  while (stop != end && IsPairLetter(*stop)) ++stop;
  return IsAnyOf(LastWord(before), kBeforeWord) ||
         IsAnyOf({next, static_cast<size_t>(stop - next)}, kBehindWord);
}

// What libraries print around a number: "tensor(", "np.float32(", "Array([".
constexpr std::string_view kWrappers[] = {"tensor",      "Tensor",   "array",   "Array",
                                          "DeviceArray", "float16",  "float32", "float64",
                                          "bfloat16",    "Parameter"};

// The wrapper that ends in front of `at`, with what parts it by dots; empty: none stands there.
std::string_view WrapperBefore(const char* from, const char* at) {
  const char* begin = at;
  while (begin != from && (IsPairLetter(begin[-1]) || IsPairDigit(begin[-1]) || begin[-1] == '.'))
    --begin;
  const std::string_view whole(begin, static_cast<size_t>(at - begin));
  const size_t dot = whole.rfind('.');
  const std::string_view word = dot == std::string_view::npos ? whole : whole.substr(dot + 1);
  return IsAnyOf(word, kWrappers) ? whole : std::string_view();
}

// Behind the parenthesis that closes the one at `open`; `end`: there is none.
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

// A parenthesis at `at`, and a sign behind it.
bool ClosesName(const char* at, const char* end) {
  return end - at > 1 && *at == ')' && kSigns[at[1]];
}

constexpr Bytes kEnds("|;,");
constexpr Bytes kStops("0123456789+-.nNiI|;,([]\xE2");

// Behind a number, as far as the part goes: "tok/s", "bf16 MFU", "words/s", a rate or a share.
std::string_view NameBehind(const char* from, const char* to) {
  constexpr std::ptrdiff_t kMost = 24;
  static constexpr Bytes kPart("|;,:");
  const char* end = from;
  while (end != to && !kPart[*end] && end - from <= kMost) ++end;
  if (end - from > kMost) return {};
  std::string_view name(from, static_cast<size_t>(end - from));
  Trim(&name, kSpaces, kSpaces);
  const bool rate = name.ends_with("/s") || name.ends_with("/sec") || name.ends_with("MFU");
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return IsPairLetter(c) || IsPairDigit(c) || c == '/' || c == ' ' || c == '_';
  });
  return rate && plain && IsPairLetter(name.front()) ? name : std::string_view();
}

}  // namespace

LogNames::Name LogNames::Of(std::string_view text) {
  // Texts come round in the same order again and again.
  Place* const before = std::exchange(last_, nullptr);
  if (before != nullptr && before->next != nullptr && before->next->text == text && !text.empty()) {
    last_ = before->next;
    return {text.substr(last_->begin, last_->size), last_->factor};
  }
  Place& place = places_[HashOf(text) % kPlaces];
  if (before != nullptr) before->next = &place;
  last_ = &place;
  if (place.text == text && !text.empty())
    return {text.substr(place.begin, place.size), place.factor};
  Name found;
  found.name = NameIn(text);
  found.factor = TakeUnitOf(&found.name);
  if (text.size() <= kMostText) {
    place.text = text;
    place.begin = found.name.empty() ? 0 : static_cast<size_t>(found.name.data() - text.data());
    place.size = found.name.size();
    place.factor = found.factor;
  }
  return found;
}

// Behind "3m" of "3m 12s": the seconds added to the minutes, both as seconds; where they end.
// `from`, and nothing changed, if no seconds follow.
static const char* AddSeconds(const char* from, const char* to, double* minutes) {
  double seconds = 0;
  if (to - from < 3 || *from != ' ' || !IsPairDigit(from[1])) return from;
  const char* stop = ScanNumber(from + 1, to, &seconds);
  if (stop == to || *stop != 's') return from;
  *minutes = 60 * *minutes + seconds;
  return stop + 1;
}

// At a byte that may begin a number. Passes it, or what is none up to the next space.
bool LogPairs::TryNumber(LogPair* pair) {
  double value = 0;
  const char* stop = at_;
  if (decimals_ == Decimals::kComma) stop = ScanCommaDecimal(at_, end_, &value);
  if (stop == at_) stop = ScanGrouped(at_, end_, &value);
  if (stop == at_) {
    ++at_;
    return false;
  }
  if (ClosesName(stop, end_)) {  // "LR (group 0)=3e-4"
    at_ = stop;
    return false;
  }
  const char* unit_end = UnitEnd(stop, end_);
  const std::string_view tight(stop, static_cast<size_t>(unit_end - stop));
  const bool sign = *at_ == '-' || *at_ == '+';
  const bool word = IsPairLetter(*at_) || (sign && at_ + 1 != end_ && IsPairLetter(at_[1]));
  const UnitOf* unit = FindUnit(tight);
  const bool fits = MayStandBehind(unit_end, end_) && tight.size() <= 24 &&
                    (!word || tight.empty() || unit != nullptr);
  if (word && IsWordOfName({name_, static_cast<size_t>(at_ - name_)}, unit_end, end_)) {
    at_ = unit_end;
    return false;
  }
  const char* total = unit_end;
  // "3/10": the first of the two.
  if (!fits && *stop == '/' && stop + 1 != end_ && IsPairDigit(stop[1])) {
    total = stop + 1;
    while (total != end_ && IsPairDigit(*total)) ++total;
  }
  const bool ratio = total != unit_end && MayStandBehind(total, end_);
  if (!fits && !ratio) {
    // A time, a date, a version: it ends a name that a sign stands behind.
    const bool valued = at_ != begin_ && (kSigns[at_[-1]] || (at_ - begin_ > 1 && kSigns[at_[-2]]));
    while (at_ != end_ && !IsSpaceByte(*at_) && *at_ != '|' && *at_ != ',') ++at_;
    if (valued) name_ = at_;
    return false;
  }
  pair->value = value;
  pair->behind_sign = BehindSign(name_, at_);
  pair->at_end = MayGoOn(ratio ? total : unit_end, end_);
  pair->group = group_;
  pair->named_behind = false;
  const std::string_view before(name_, static_cast<size_t>(at_ - name_));
  const LogNames::Name name = names_->Of(before);
  const bool nameless = name.name.empty() && std::all_of(before.begin(), before.end(), [](char c) {
                          static constexpr Bytes kParting(" \t|;,:");
                          return kParting[c];
                        });
  if (name.name.empty() && pair->behind_sign && !nameless) Refuse(before);
  at_ = ratio ? total : unit_end;
  if (tight == "m") at_ = AddSeconds(at_, end_, &pair->value);
  // "250.0 ms": a unit behind a space.
  if (!ratio && tight.empty() && end_ - at_ > 1 && *at_ == ' ') {
    const char* far = UnitEnd(at_ + 1, end_);
    const UnitOf* behind = FindUnit({at_ + 1, static_cast<size_t>(far - at_ - 1)});
    static constexpr Bytes kBehindUnit(" ,;|)]");
    if (behind != nullptr && (far == end_ || kBehindUnit[*far])) {
      unit = behind;
      at_ = far;
    }
  }
  name_ = at_;
  if (unit != nullptr && !ratio) pair->value *= unit->factor;
  if (nameless && name_ != begin_ && !ratio && (unit == nullptr || unit->name == "%"))
    return TakeNameBehind(pair);
  pair->name = name.name;
  pair->value *= name.factor;
  return !name.name.empty();
}

void LogPairs::Refuse(std::string_view text) {
  static constexpr Bytes kAround(" \t,;|:=");
  Trim(&text, kAround, kAround);
  const bool word = std::any_of(text.begin(), text.end(), IsPairLetter);
  if (!word || IsSourceFile(text)) return;
  if (refused_++ == 0) first_refused_ = text;
}

bool LogPairs::TakeNameBehind(LogPair* pair) {
  pair->name = NameBehind(at_, end_);
  if (pair->name.empty()) return false;
  at_ = name_ = pair->name.data() + pair->name.size();
  pair->behind_sign = pair->named_behind = true;
  return true;
}

// At a bracket: "tot_loss[loss=0.5, " opens a group, its closing bracket ends it.
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

// At an opening parenthesis right behind a value: what is in it belongs to that.
bool LogPairs::PassParentheses() {
  constexpr std::ptrdiff_t kMost = 64;
  for (const char* p = name_; p != at_; ++p) {
    if (!IsSpaceByte(*p)) return false;
  }
  if (name_ == begin_) return false;
  const auto room = std::min(end_ - at_, kMost);
  const void* close = std::memchr(at_, ')', static_cast<size_t>(room));
  if (close == nullptr) return false;
  at_ = name_ = static_cast<const char*>(close) + 1;
  return true;
}

// At an opening parenthesis behind "loss=tensor": the first number in it is the value, and the
// rest belongs to that.
bool LogPairs::TryWrapped(LogPair* pair) {
  const std::string_view wrapper = WrapperBefore(name_, at_);
  if (wrapper.empty() || wrapper.data() == name_) return false;
  const char* first = at_ + 1;
  while (first != end_ && (*first == '[' || IsSpaceByte(*first))) ++first;
  const char* stop = ScanNumber(first, end_, &pair->value);
  static constexpr Bytes kAfter(" ,.)]");  // "2." is a whole number of Python
  if (stop == first || (stop != end_ && !kAfter[*stop])) return false;
  pair->named_behind = false;
  pair->behind_sign = BehindSign(name_, wrapper.data());
  pair->at_end = MayGoOn(stop, end_);
  pair->group = group_;
  const LogNames::Name name = names_->Of({name_, static_cast<size_t>(wrapper.data() - name_)});
  pair->name = name.name;
  pair->value *= name.factor;
  at_ = name_ = CloseOf(at_, end_);
  return !name.name.empty();
}

bool LogPairs::Next(LogPair* pair) {
  while (at_ != end_) {
    const char c = *at_;
    if (!kStops[c]) {
      ++at_;
    } else if (kEnds[c]) {
      name_ = ++at_;
    } else if (c == '[' || c == ']') {
      TakeGroup();
      ++at_;
    } else if (c == '(') {
      const char* open = at_;
      if (TryWrapped(pair)) return true;
      if (at_ == open && !PassParentheses()) ++at_;
    } else if (at_ != begin_ && !kBefore[at_[-1]]) {
      ++at_;
    } else if (TryNumber(pair)) {
      return true;
    }
  }
  return false;
}

void CountDecimals(std::string_view line, size_t* commas, size_t* points) {
  for (size_t at = 1; at + 1 < line.size(); ++at) {
    const char c = line[at];
    if ((c != ',' && c != '.') || !IsPairDigit(line[at - 1]) || !IsPairDigit(line[at + 1]))
      continue;
    size_t begin = at, end = at + 1;
    while (begin > 0 && IsPairDigit(line[begin - 1])) --begin;
    while (end < line.size() && IsPairDigit(line[end])) ++end;
    static constexpr Bytes kFront(" \t:=-+");
    static constexpr Bytes kBack(" \t|;eE%,");
    const bool apart =
        begin > 0 && kFront[line[begin - 1]] && (end == line.size() || kBack[line[end]]);
    // "12:00:00,123" and "1.2.3" are neither.
    if (!apart || (line[begin - 1] == ':' && begin > 1 && IsPairDigit(line[begin - 2]))) continue;
    if (c == '.') {
      ++*points;
    } else if (end - at != 4 || line[begin] == '0') {
      const bool list = end < line.size() && line[end] == ',' && end + 1 < line.size() &&
                        !IsSpaceByte(line[end + 1]);
      *commas += list ? 0 : 1;
    }
    at = end;
  }
}

}  // namespace plumbline::audit
