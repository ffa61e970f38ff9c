#include "rules/bases/speed_names.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "analysis/role/role.h"
#include "base/names/name_memo.h"
#include "rules/bases/companions.h"

namespace plumbline::rules {
namespace {

Pace FindPace(const std::string& op) {
  const SeriesRole role = RoleByName(op);
  std::string text;
  for (const char c : absl::AsciiStrToLower(op)) {
    if (c == '/') text += " per ";
    text += absl::ascii_isalpha(static_cast<unsigned char>(c)) ? c : ' ';
  }
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  const auto has = [&](std::initializer_list<const char*> any) {
    return std::any_of(any.begin(), any.end(), [&](const char* word) {
      return std::find(words.begin(), words.end(), word) != words.end();
    });
  };
  const bool per = has({"per"});
  if (has({"eval", "val", "test", "data", "max", "min", "total"})) return Pace::kNone;
  if (role == SeriesRole::kStepSeconds ||
      (per && has({"elapsed"}) && has({"iteration"}) && has({"ms"})))
    return Pace::kSeconds;
  const bool second = per && has({"second", "sec", "s", "tflop"});
  const bool work = has({"samples", "sample", "images", "imgs", "img", "examples", "sentences",
                         "batches", "it", "its", "iter", "iters", "iterations", "tflop", "tflops"});
  return role == SeriesRole::kNone && second && work ? Pace::kWork : Pace::kNone;
}

bool FindWork(const std::string& op) {
  constexpr std::string_view kSized[] = {"batch", "world"}, kSize[] = {"size"}, kGpus[] = {"gpus"};
  const PlainWords words = PlainWordsOf(op);
  const Companions::Kind kind = Companions::KindOf(op);
  return kind == Companions::Kind::kPhase || kind == Companions::Kind::kModel ||
         HasAnyWord(words, kGpus) || (HasAnyWord(words, kSized) && HasAnyWord(words, kSize));
}

}  // namespace

WorkName NameOfWork(const std::string& op) {
  thread_local NameMemo<WorkName> memo;
  return memo.Of(op, [&op](std::string_view) { return WorkName{FindPace(op), FindWork(op)}; });
}

bool HasWordsOfSpeed(const std::string& op, std::initializer_list<const char*> all) {
  const std::vector<std::string> words =
      absl::StrSplit(absl::AsciiStrToLower(op), absl::ByAnyChar("/_-. :"), absl::SkipEmpty());
  return std::all_of(all.begin(), all.end(), [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  });
}

MfuName NameOfMfu(const std::string& op) {
  thread_local NameMemo<MfuName> memo;
  return memo.Of(op, [&op](std::string_view) {
    return MfuName{HasWordsOfSpeed(op, {"mfu"}), HasWordsOfSpeed(op, {"tokens", "per", "second"}),
                   HasWordsOfSpeed(op, {"per", "gpu"})};
  });
}

}  // namespace plumbline::rules
