#include "audit/readers/trainer_log/log_sentences.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/log_text/log_numbers.h"
#include "audit/readers/scalars/number_text.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostSentence = 1024;  // limit of bytes of a sentence

bool LineHas(std::string_view line, std::string_view word) {
  return memmem(line.data(), line.size(), word.data(), word.size()) != nullptr;
}

template <size_t N>
bool LineHasAny(std::string_view line, const std::string_view (&words)[N]) {
  return std::any_of(std::begin(words), std::end(words),
                     [&](std::string_view word) { return LineHas(line, word); });
}

}  // namespace

bool StatesResume(std::string_view line) {
  static constexpr std::string_view kParts[] = {"esum", "ontinuing t", "estor", "oaded ch"};
  static constexpr std::string_view kPhrases[] = {"resuming training",
                                                  "resuming from",
                                                  "resuming run from",
                                                  "resumed from",
                                                  "resumed training",
                                                  "resumed epoch",
                                                  "resume training from",
                                                  "continuing training from",
                                                  "restored all states from",
                                                  "restoring states from",
                                                  "successfully loaded checkpoint",
                                                  "=> loaded checkpoint"};
  static constexpr std::string_view kNot[] = {"none",          "scratch", "false",  "not ",
                                              "no checkpoint", "cannot",  "failed", "could",
                                              "will be",       "disabled"};
  if (line.size() > kMostSentence || !LineHasAny(line, kParts)) return false;
  std::string lower(line);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return LineHasAny(lower, kPhrases) && !LineHasAny(lower, kNot);
}

std::optional<double> MemoryLimitIn(std::string_view line) {
  constexpr std::string_view kWords = "total capacity of ";
  const size_t at = line.size() > kMostSentence ? line.npos : line.find(kWords);
  if (at == std::string_view::npos) return std::nullopt;
  const char* begin = line.data() + at + kWords.size();
  const char* to = line.data() + line.size();
  double value = 0;
  const char* end = ScanGrouped(begin, to, &value);
  if (end == begin || end == to || !(value > 0)) return std::nullopt;
  if (IsSpaceByte(*end)) ++end;
  const UnitOf* unit = FindUnit({end, static_cast<size_t>(UnitEnd(end, to) - end)});
  if (unit == nullptr || unit->factor < 1000) return std::nullopt;
  return value * unit->factor;
}

}  // namespace plumbline::audit
