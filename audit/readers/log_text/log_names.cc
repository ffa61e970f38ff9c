#include "audit/readers/log_text/log_names.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

#include "audit/readers/log_text/log_numbers.h"

namespace plumbline::audit {
namespace {

// If the text before a number contains one of these words, it is a sentence, not a name.
constexpr std::string_view kSentence[] = {"did",      "not",    "was",     "is",     "reached",
                                          "improved", "from",   "than",    "saving", "saved",
                                          "loading",  "loaded", "writing", "wrote",  "to",
                                          "best:",    "until",  "exceeds", "after",  "with",
                                          "because",  "took"};

constexpr int kMostWords = 6;       // limit of words in a name that ends in ':' or '='
constexpr int kMostPlainWords = 3;  // limit of words in a name without a sign

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

// Removes the range that a mean covers: "avg. loss [1-120]".
std::string_view WithoutRange(std::string_view text) {
  const size_t open = text.rfind(" [");
  if (open == std::string_view::npos || open == 0) return text;
  const std::string_view range = text.substr(open + 2);
  const bool digits = !range.empty() && std::all_of(range.begin(), range.end(), [](char c) {
    return IsPairDigit(c) || c == '-' || c == ']';
  });
  return digits && range.find('-') != std::string_view::npos ? text.substr(0, open) : text;
}

// Returns the text after emoji and other signs that cannot be part of a name.
std::string_view WithoutGlyphs(std::string_view text) {
  for (size_t at = text.size(); at > 0; --at) {
    if (static_cast<unsigned char>(text[at - 1]) < 0x80) continue;
    const std::string_view rest = text.substr(at);
    if (!rest.starts_with(' ')) return text;
    return std::any_of(rest.begin(), rest.end(), IsPairLetter) ? rest : text;
  }
  return text;
}

// Removes the verb: "loss is", "current loss is", "training loss was". Keeps "previous loss was",
// whose value belongs to another step.
std::string_view WithoutVerb(std::string_view text) {
  static constexpr std::string_view kWhose[] = {"current",    "training", "train", "total",
                                                "mean",       "average",  "avg",   "val",
                                                "validation", "test",     "the"};
  const size_t verb = text.rfind(' ');
  if (verb == std::string_view::npos || (text.substr(verb) != " is" && text.substr(verb) != " was"))
    return text;
  const std::string_view name = text.substr(0, verb);
  const size_t space = name.find(' ');
  if (space == std::string_view::npos) {
    const bool loss = name == "loss" || name == "Loss";
    return text.ends_with(" is") || loss ? name : text;
  }
  const bool whose =
      std::find(std::begin(kWhose), std::end(kWhose), name.substr(0, space)) != std::end(kWhose);
  const std::string_view what = name.substr(space + 1);
  return whose && (what == "loss" || what == "Loss") ? name : text;
}

// Removes a finished sentence: "done. Loss", "records/second. Loss". "Val. Loss" is a name.
std::string_view WithoutSentence(std::string_view text) {
  static constexpr std::string_view kEnds[] = {"done",     "finished", "complete", "completed",
                                               "ended",    "over",     "Done",     "Finished",
                                               "Complete", "Completed"};
  const size_t dot = text.rfind(". ");
  if (dot == std::string_view::npos) return text;
  const std::string_view before = text.substr(0, dot);
  const std::string_view word = before.substr(before.find_last_of(" \t") + 1);
  const bool ends = word.find('/') != std::string_view::npos ||
                    std::find(std::begin(kEnds), std::end(kEnds), word) != std::end(kEnds);
  return ends ? text.substr(dot + 2) : text;
}

// Removes the level of a logger: "INFO loss".
std::string_view WithoutLevel(std::string_view text) {
  for (const std::string_view level :
       {"INFO ", "DEBUG ", "WARNING ", "WARN ", "ERROR ", "NOTICE "}) {
    if (text.starts_with(level)) return text.substr(level.size());
  }
  return text;
}

// Returns the name in the text before a number; empty if there is none.
std::string_view NameIn(std::string_view text) {
  static constexpr Bytes kLead(" \t,;|)]}[.-*>:=/");
  static constexpr Bytes kOpen(" \t([");
  static constexpr Bytes kQuotes("'\"");
  static constexpr Bytes kTail(" \t:=('\"[|");
  static constexpr Bytes kNever("\"{}[]<>\\`;:=");
  Trim(&text, kLead, kOpen);
  const bool parted = !text.empty() && kSigns[text.back()];
  Trim(&text, kQuotes, kTail);
  // "phase: train loss" before a colon: a value that is not numeric, and then the name.
  if (parted) {
    const size_t sign = text.find_last_of(":=");
    if (sign != std::string_view::npos) {
      text.remove_prefix(sign + 1);
      Trim(&text, kSpaces, kNothing);
      const size_t word = text.find_first_of(" \t");
      if (word != std::string_view::npos) text.remove_prefix(word);
      Trim(&text, kLead, kNothing);
      Trim(&text, kQuotes, kNothing);
    }
  }
  text = WithoutGlyphs(WithoutRange(text));
  Trim(&text, kLead, kNothing);
  // "loss - "
  if (text.ends_with(" -")) text.remove_suffix(2);
  // "1234 samples/sec   Loss": two spaces separate columns.
  if (const size_t columns = text.rfind("  "); columns != std::string_view::npos)
    text.remove_prefix(columns + 2);
  if (const size_t tab = text.rfind('\t'); tab != std::string_view::npos)
    text.remove_prefix(tab + 1);
  // "INFO] - loss"
  if (const size_t bracket = text.rfind("] "); bracket != std::string_view::npos) {
    text.remove_prefix(bracket + 1);
    Trim(&text, kLead, kNothing);
  }
  // "(epoch 3): loss"
  if (const size_t closed = text.rfind("): "); closed != std::string_view::npos)
    text.remove_prefix(closed + 3);
  // "00:00:00,123-Speed"
  const size_t digits = text.find_first_not_of("0123456789");
  if (digits != std::string_view::npos && digits > 0 && text[digits] == '-')
    text.remove_prefix(digits + 1);
  // "eta 0:12:03 lr": the text after a time.
  for (size_t at = text.find(':'); at != std::string_view::npos; at = text.find(':', at + 1)) {
    const size_t space = text.find(' ', at);
    const bool time = at > 0 && at + 1 < text.size() && IsPairDigit(text[at - 1]) &&
                      IsPairDigit(text[at + 1]) && space != std::string_view::npos;
    if (!time) continue;
    text.remove_prefix(space + 1);
    break;
  }
  // "completed (loss": the text after a parenthesis that is not closed.
  if (const size_t open = text.rfind('(');
      open != std::string_view::npos && open > 0 && text.find(')', open) == std::string_view::npos)
    text.remove_prefix(open + 1);
  text = WithoutVerb(WithoutSentence(WithoutLevel(text)));
  Trim(&text, kLead, kNothing);
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

// Removes the unit: "elapsed time (ms)" becomes "elapsed time", and 0.001 is returned.
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

}  // namespace

bool IsSourceFile(std::string_view text) {
  static constexpr std::string_view kEndings[] = {".py", ".cc", ".cpp", ".cu", ".rs",
                                                  ".go", ".c",  ".h",   ".pyx"};
  return std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](std::string_view ending) { return text.ends_with(ending); });
}

std::string_view NameAfter(const char* from, const char* to) {
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
  const bool after = name == "avg loss" || name == "rate" || name == "cost" || name == "loss";
  return (rate || after) && plain && IsPairLetter(name.front()) ? name : std::string_view();
}

LogNames::Name LogNames::Of(std::string_view text) {
  // Tries the text that followed last time, because texts repeat in the same order.
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

}  // namespace plumbline::audit
