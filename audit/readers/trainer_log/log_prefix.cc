#include "audit/readers/trainer_log/log_prefix.h"

#include <algorithm>
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

// True for a module and its line: "train.callbacks.console:43", "trainer:train:1".
bool IsOfModule(std::string_view text, const LogPair& pair) {
  if (HasTrainingWord(pair.name)) return false;  // "INFO:train:loss = 0.0, step = 900"
  const auto at = static_cast<size_t>(pair.name.data() - text.data());
  const bool part = at > 0 && text[at - 1] == ':';
  const bool dotted = pair.name.find('.') != std::string_view::npos && !pair.name.ends_with('.');
  return IsWhole(pair.value) && (part || dotted) && pair.name.find(' ') == std::string_view::npos;
}

}  // namespace

bool IsOfTheLine(std::string_view text, const LogPair& pair) {
  return NamesThePlace(pair.name) || IsOfModule(text, pair);
}

bool IsInBrackets(std::string_view text, std::string_view name) {
  const auto at = static_cast<size_t>(name.data() - text.data());
  const size_t open = text.find_last_of("[]", at);
  return open != std::string_view::npos && text[open] == '[';
}

bool IsPartOfItsOwn(std::string_view text, std::string_view name) {
  size_t at = static_cast<size_t>(name.data() - text.data());
  while (at > 0 && IsSpaceByte(text[at - 1])) --at;
  static constexpr Bytes kParts("|,;");
  return at > 0 && kParts[text[at - 1]] && name.find(' ') == std::string_view::npos;
}

}  // namespace plumbline::audit
