#include "audit/readers/trainer_log/log_prefix.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/scalars/number_text.h"
#include "audit/readers/scalars/step_name.h"

namespace plumbline::audit {
namespace {

std::string_view LastOfName(std::string_view name) {
  static constexpr Bytes kAround(" \t[(");
  Trim(&name, kAround, kSpaces);
  const size_t part = name.find_last_of("[(");
  return part == std::string_view::npos ? name : name.substr(part + 1);
}

// True for names before a mark that are not series: a process, a place, a time, a count.
bool NamesThePlace(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "rank",   "local_rank", "global_rank", "local rank", "global rank", "pid",     "tid",
      "gpu",    "node",       "worker",      "process",    "host",        "job",     "world_size",
      "device", "thread",     "time",        "timestamp",  "ts",          "line",    "lineno",
      "ep",     "batch",      "batches",     "batch_idx",  "eta",         "elapsed", "remaining",
      "run",    "task",       "v_num",       "seed",       "jan",         "feb",     "mar",
      "apr",    "may",        "jun",         "jul",        "aug",         "sep",     "oct",
      "nov",    "dec"};
  std::string lower(LastOfName(name));
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return StepNameRank(lower) >= 0 ||
         std::find(std::begin(kNames), std::end(kNames), lower) != std::end(kNames);
}

// Returns the place of a name in the text; npos if it is no part of it, as "[0]" of a list.
size_t PlaceOf(std::string_view text, std::string_view name) {
  const auto at =
      reinterpret_cast<uintptr_t>(name.data()) - reinterpret_cast<uintptr_t>(text.data());
  return at <= text.size() ? at : std::string_view::npos;
}

// True for a module and its line: "train.callbacks.console:43", "trainer:train:1".
bool IsOfModule(std::string_view text, const LogPair& pair) {
  if (HasTrainingWord(pair.name)) return false;  // "INFO:train:loss = 0.0, step = 900"
  const size_t at = PlaceOf(text, pair.name);
  if (at == std::string_view::npos) return false;
  const bool part = at > 0 && text[at - 1] == ':';
  const bool dotted = pair.name.find('.') != std::string_view::npos && !pair.name.ends_with('.');
  return IsWhole(pair.value) && (part || dotted) && pair.name.find(' ') == std::string_view::npos;
}

}  // namespace

bool IsOfTheLine(std::string_view text, const LogPair& pair) {
  return NamesThePlace(pair.name) || IsOfModule(text, pair);
}

bool IsInBrackets(std::string_view text, std::string_view name) {
  const size_t at = PlaceOf(text, name);
  if (at == std::string_view::npos) return false;
  const size_t open = text.find_last_of("[]", at);
  return open != std::string_view::npos && text[open] == '[';
}

bool IsPartOfItsOwn(std::string_view text, std::string_view name) {
  size_t at = PlaceOf(text, name);
  if (at == std::string_view::npos) return false;
  while (at > 0 && IsSpaceByte(text[at - 1])) --at;
  static constexpr Bytes kParts("|,;");
  return at > 0 && kParts[text[at - 1]] && name.find(' ') == std::string_view::npos;
}

}  // namespace plumbline::audit
