#include "analysis/role/memory_name.h"

#include <algorithm>
#include <initializer_list>
#include <unordered_map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace plumbline::analysis {
namespace {

std::vector<std::string> WordsOfMemory(const std::string& op) {
  return absl::StrSplit(absl::AsciiStrToLower(op), absl::ByAnyChar("/_-. :"), absl::SkipEmpty());
}

bool HasMemoryWord(const std::vector<std::string>& words, std::initializer_list<const char*> any) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::find(any.begin(), any.end(), word) != any.end();
  });
}

// Returns true for names such as "system/gpu.0.memoryAllocated".
bool IsWandbGpu(const std::string& op) {
  return op.starts_with("system/gpu.") || op.starts_with("system.gpu.");
}

MemoryKind KindByWords(const std::string& op) {
  const auto words = WordsOfMemory(op);
  if (HasMemoryWord(words, {"limit", "total", "capacity"})) return MemoryKind::kLimit;
  if (HasMemoryWord(words, {"peak", "max", "free", "available", "fragmentation"}))
    return MemoryKind::kNone;
  // "memoryTemp", "correctedMemoryErrors", "availableMB" are W&B's names.
  const bool other = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word.ends_with("temp") || word.ends_with("errors") || word.ends_with("clock") ||
           word.starts_with("temperature") || word.starts_with("available");
  });
  if (other) return MemoryKind::kNone;
  if (IsWandbGpu(op) && op.ends_with(".memory"))
    return MemoryKind::kNone;  // the value is a share of time, not of memory
  return MemoryKind::kUse;
}

}  // namespace

MemoryKind KindOfMemory(const std::string& op) {
  constexpr size_t kMostKept = 256;
  thread_local std::unordered_map<std::string, MemoryKind> kept;
  if (const auto known = kept.find(op); known != kept.end()) return known->second;
  if (kept.size() >= kMostKept) kept.clear();
  return kept[op] = KindByWords(op);
}

// W&B reports its GPUs' memory in percent.
double LimitInName(const std::string& op) {
  const auto words = WordsOfMemory(op);
  if (HasMemoryWord(words, {"share", "fraction", "ratio"})) return 1;
  if (HasMemoryWord(words, {"percent", "pct"})) return 100;
  return IsWandbGpu(op) && op.ends_with("memoryAllocated") ? 100 : 0;
}

}  // namespace plumbline::analysis
