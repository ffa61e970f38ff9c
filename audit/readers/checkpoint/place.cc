#include "audit/readers/checkpoint/place.h"

#include <charconv>
#include <filesystem>
#include <vector>

namespace plumbline::audit {
namespace {

namespace fs = std::filesystem;

// Number of names in which a step is searched: the file, a rank's folder, the step's folder, and
// one between them.
constexpr int kMostLooked = 4;

bool IsNameLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsNameDigit(char c) { return c >= '0' && c <= '9'; }

// Returns the number after `word` in a name: "step-1000", "step=1000", "step_1000", "step1000".
std::optional<int64_t> NumberAfter(std::string_view name, std::string_view word) {
  for (size_t at = name.find(word); at != std::string_view::npos; at = name.find(word, at + 1)) {
    if (at > 0 && (IsNameLetter(name[at - 1]) || IsNameDigit(name[at - 1]))) continue;
    size_t i = at + word.size();
    while (i < name.size() && (name[i] == '-' || name[i] == '_' || name[i] == '=')) ++i;
    int64_t value = 0;
    const auto [end, error] = std::from_chars(name.data() + i, name.data() + name.size(), value);
    const bool whole = end == name.data() + name.size() || !IsNameLetter(*end);
    if (error == std::errc() && whole && i < name.size() && IsNameDigit(name[i])) return value;
  }
  return std::nullopt;
}

uint32_t SmallNumber(std::string_view text, size_t* at) {
  uint32_t value = 0;
  while (*at < text.size() && IsNameDigit(text[*at])) {
    if (value < 1000000) value = value * 10 + static_cast<uint32_t>(text[*at] - '0');
    ++*at;
  }
  return value;
}

}  // namespace

std::optional<int64_t> StepOfName(std::string_view name) {
  for (const std::string_view word :
       {"global_step", "global-step", "step", "iteration", "iter", "checkpoint", "ckpt"}) {
    if (const std::optional<int64_t> step = NumberAfter(name, word)) return step;
  }
  return std::nullopt;
}

namespace {

// Parses "rank_3.pt", "model_rank-3.pt", "dp_rank_3", but not "lora_rank_8".
std::optional<uint32_t> RankOfName(std::string_view name) {
  for (const std::string_view before : {"model_", "model-", "checkpoint_", "ckpt_"}) {
    if (name.starts_with(before)) name.remove_prefix(before.size());
  }
  // PyTorch's distributed form: "__3_0.distcp" is the first file of rank 3.
  if (name.starts_with("__") && name.ends_with(".distcp") && name.size() > 2 &&
      IsNameDigit(name[2])) {
    size_t at = 2;
    return SmallNumber(name, &at);
  }
  if (name.starts_with("dp_")) name.remove_prefix(3);
  if (!name.starts_with("rank")) return std::nullopt;
  const std::optional<int64_t> rank = NumberAfter(name, "rank");
  if (!rank || *rank < 0 || *rank >= 1000000) return std::nullopt;
  return static_cast<uint32_t>(*rank);
}

// Returns the rank in the file's name. If there is none and the folder belongs to a step, returns
// the rank in the folder's name: "step-4/rank3/model.pt".
std::optional<uint32_t> PlainRank(const fs::path& path) {
  if (const auto rank = RankOfName(path.filename().string())) return rank;
  const fs::path folder = path.parent_path();
  if (!StepOfName(folder.parent_path().filename().string())) return std::nullopt;
  return RankOfName(folder.filename().string());
}

}  // namespace

RankTag RankOfPath(std::string_view path) {
  RankTag tag;
  if (const size_t at = path.rfind("mp_rank_"); at != std::string_view::npos) {
    size_t i = at + 8;
    tag.ranked = i < path.size() && IsNameDigit(path[i]);
    tag.tensor = SmallNumber(path, &i);
    if (i + 1 < path.size() && path[i] == '_' && IsNameDigit(path[i + 1]))
      tag.stage = SmallNumber(path, &++i);
  }
  const size_t zero = path.rfind("zero_pp_rank_");
  if (zero != std::string_view::npos) {
    size_t i = zero + 13;
    tag.shard = tag.ranked = true;
    tag.data = SmallNumber(path, &i);
  }
  if (tag.ranked) return tag;
  if (const auto rank = PlainRank(path)) {
    tag.ranked = tag.plain = true;
    tag.data = *rank;
  }
  return tag;
}

bool IsLeftover(const std::string& path) {
  const auto ends = [](std::string_view name) {
    for (const std::string_view end : {".tmp", ".temp", ".part", ".partial", ".incomplete", "~"}) {
      if (name.ends_with(end)) return true;
      // A process id or a random suffix may follow: "model.pt.tmp.4711", "model.pt.tmp_x7f".
      const size_t at = end == "~" ? std::string_view::npos : name.rfind(end);
      if (at != std::string_view::npos && at > 0 && at + end.size() < name.size() &&
          (name[at + end.size()] == '.' || name[at + end.size()] == '_') &&
          name.find('.', at + end.size() + 1) == std::string_view::npos)
        return true;
    }
    return false;
  };
  const fs::path whole = fs::path(path).lexically_normal();
  if (ends(whole.filename().string())) return true;
  // Check the folder of a step, or of one of its ranks.
  int looked = 0;
  for (fs::path at = whole.parent_path(); at.has_filename() && ++looked < kMostLooked;
       at = at.parent_path()) {
    const std::string name = at.filename().string();
    const bool marked = name.starts_with("tmp-") || name.starts_with("tmp_") || ends(name);
    if (marked && StepOfName(name)) return true;
  }
  return false;
}

CheckpointPlace PlaceOf(const std::string& path) {
  CheckpointPlace place;
  std::error_code error;
  fs::path whole = fs::absolute(path, error).lexically_normal();
  place.rank = RankOfPath(path);
  fs::path folder = whole.parent_path();
  // Search the file's name first, then its folders from the inside out.
  int looked = 0;
  for (fs::path at = whole; at.has_filename() && looked < kMostLooked; at = at.parent_path()) {
    ++looked;
    place.step = StepOfName(at.filename().string());
    if (!place.step) continue;
    folder = at.parent_path();
    break;
  }
  // A rank's folder is not a run: run/mp_rank_00/model.pt.
  if (!place.step && RankOfPath(folder.filename().string()).ranked) folder = folder.parent_path();
  place.path = folder.string();
  place.run = folder.filename().string();
  if (place.run.empty()) place.run = place.path;
  return place;
}

}  // namespace plumbline::audit
