#include "audit/readers/input/file_places.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string_view>

namespace plumbline::audit {
namespace {

using Names = std::vector<std::string>;

constexpr std::string_view kSplits[] = {"train", "training",   "val",  "valid", "validation",
                                        "eval",  "evaluation", "test", "dev",   "learn"};
// Text after the split's name in CatBoost's learn_error.tsv and test_error.tsv.
constexpr std::string_view kErrorFile = "_error";

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

bool IsSplit(std::string_view name) {
  return std::find(std::begin(kSplits), std::end(kSplits), LowerCase(name)) != std::end(kSplits);
}

bool IsTraining(std::string_view name) {
  return LowerCase(name).starts_with("train") || LowerCase(name) == "learn";
}

bool IsAlnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
bool IsNumeral(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::optional<uint32_t> RankOfDigits(std::string_view digits) {
  int64_t rank = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (!whole || rank < 0 || rank > FilePlace::kMostRank) return std::nullopt;
  return static_cast<uint32_t>(rank);
}

// Removes a rank, with the sign before it, from a name, and returns the rank. It is the word `rank`
// and digits, with at most one sign between them. Ignores a local rank, which is unique only on its
// host.
std::optional<uint32_t> TakeRank(std::string* name) {
  constexpr std::string_view kWord = "rank";
  const std::string lower = LowerCase(*name);
  for (size_t at = lower.find(kWord); at != std::string::npos; at = lower.find(kWord, at + 1)) {
    if (at > 0 && IsAlnum(lower[at - 1])) continue;
    const std::string_view before = std::string_view(lower).substr(0, at > 0 ? at - 1 : 0);
    if (before.ends_with("local") || before.ends_with("node")) continue;
    size_t begin = at + kWord.size();
    if (begin < lower.size() && std::string_view("_-=.").find(lower[begin]) != std::string::npos)
      ++begin;
    size_t end = begin;
    while (end < lower.size() && IsNumeral(lower[end])) ++end;
    if (end == begin || (end < lower.size() && IsAlnum(lower[end]))) continue;
    const auto rank = RankOfDigits(std::string_view(lower).substr(begin, end - begin));
    if (!rank) continue;
    const size_t from = at > 0 ? at - 1 : at;
    name->erase(from, end - from);
    return rank;
  }
  return std::nullopt;
}

// A path and the place derived from it.
struct Path {
  Names names;  // names of the folders, then of the file
  FilePlace place;
  Names key;  // names that identify the run
};

Names Split(const std::string& path) {
  std::error_code error;
  std::filesystem::path whole = std::filesystem::absolute(path, error);
  if (error) whole = path;
  Names names;
  for (const auto& name : whole.lexically_normal()) {
    if (!name.empty() && name != "/") names.push_back(name.string());
  }
  if (names.empty()) names.push_back(path);
  return names;
}

void FindRank(const std::string& path, const std::optional<std::regex>& pattern, Path* out) {
  std::string rest = path;
  std::optional<uint32_t> rank;
  if (pattern) {
    std::smatch match;
    if (std::regex_search(path, match, *pattern) && match.size() > 1)
      rank = RankOfDigits(match.str(1));
    if (rank) rest = match.prefix().str() + match.suffix().str();
    out->names = Split(rest);
  } else {
    out->names = Split(path);
    for (size_t i = out->names.size(); i-- > 0 && !rank;) rank = TakeRank(&out->names[i]);
  }
  // If a folder's name is only the rank, it does not belong to the run's name. A file always keeps
  // a name.
  const std::string file = out->names.back();
  out->names.pop_back();
  std::erase(out->names, "");
  out->names.push_back(file.empty() || file[0] == '.' ? "rank" + file : file);
  out->place.rank = rank.value_or(0);
  out->place.rank_stated = rank.has_value();
}

// ---- which files are one run
// ---------------------------------------------------------------------

Names FolderOf(const Path& path) { return {path.names.begin(), path.names.end() - 1}; }

std::string Joined(const Names& names, size_t from) {
  std::string out;
  for (size_t i = from; i < names.size(); ++i) out += (i > from ? "/" : "") + names[i];
  return out;
}

// If a folder has files, the folders directly in it are part of its run.
void PlaceByFolder(std::vector<Path>* paths) {
  std::set<Names> folders;
  for (const Path& path : *paths) folders.insert(FolderOf(path));
  for (Path& path : *paths) {
    const Names folder = FolderOf(path);
    Names root = folder;
    while (root.size() > 1) {
      const Names parent(root.begin(), root.end() - 1);
      if (!folders.contains(parent)) break;
      root = parent;
    }
    if (root.size() > 1 && IsSplit(root.back())) root.pop_back();
    path.place.prefix = Joined(folder, root.size());
    path.key = root;
  }
}

// Places DVCLive's "dvclive/plots/metrics/eval/loss.tsv": one run, one file per series. Returns
// false for any other path.
bool PlaceOfMetric(Path* path) {
  const Names& names = path->names;
  for (size_t i = 1; i + 2 < names.size(); ++i) {
    if (names[i] != "plots" || names[i + 1] != "metrics") continue;
    path->key = {names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i)};
    path->place.prefix = Joined(FolderOf(*path), i + 2);
    return true;
  }
  return false;
}

// Returns the split in a file's name: "val" for "val.csv", "test" for "test_error.tsv". Files with
// equal `rest` belong together.
std::string SplitOf(const std::string& file, std::string* rest) {
  std::string stem = file.substr(0, file.find('.'));
  if (stem.ends_with(kErrorFile)) {
    stem.resize(stem.size() - kErrorFile.size());
    *rest = kErrorFile;
  } else {
    rest->clear();
  }
  return stem;
}

// Makes train.csv and val.csv of one folder one run, named after train.csv.
void PlaceByFile(std::vector<Path>* paths) {
  std::map<std::pair<Names, std::string>, std::string> training;  // (folder, rest) -> training file
  std::string rest;
  for (const Path& path : *paths) {
    const std::string& file = path.names.back();
    const std::string split = SplitOf(file, &rest);
    if (IsTraining(split) && IsSplit(split))
      training.emplace(std::pair(FolderOf(path), rest), file);
  }
  for (Path& path : *paths) {
    if (PlaceOfMetric(&path)) continue;
    path.key = path.names;
    const std::string& file = path.names.back();
    // the series' name may contain a folder: "eval/loss.tsv"
    if (path.names.size() > 1) {
      const std::string& folder = path.names[path.names.size() - 2];
      if (IsSplit(folder) && !IsTraining(folder)) path.place.prefix = folder;
    }
    const std::string split = SplitOf(file, &rest);
    const auto main = training.find({FolderOf(path), rest});
    if (!IsSplit(split) || main == training.end() || main->second == file) continue;
    path.key.back() = main->second;
    path.place.prefix = split;
  }
}

std::string EndOf(const Names& key, size_t count) {
  return Joined(key, key.size() - std::min(count, key.size()));
}

// Names each key by its shortest suffix that no other key has.
std::map<Names, std::string> NameKeys(const std::set<Names>& keys) {
  std::map<Names, std::string> names;
  std::set<Names> open = keys;
  for (size_t count = 1; !open.empty(); ++count) {
    std::map<std::string, std::vector<const Names*>> by_end;
    for (const Names& key : open) by_end[EndOf(key, count)].push_back(&key);
    std::set<Names> still;
    for (const auto& [end, those] : by_end) {
      for (const Names* key : those) {
        if (those.size() > 1 && count < key->size()) {
          still.insert(*key);
        } else {
          names[*key] = end;
        }
      }
    }
    open = std::move(still);
  }
  return names;
}

// Returns the output folder to which a trainer's state belongs, for the newest state and for a copy
// in a checkpoint. Returns "" for other files.
std::string OutputOf(const std::string& path) {
  namespace fs = std::filesystem;
  if (!path.ends_with("trainer_state.json")) return "";  // fast check
  const fs::path file = fs::absolute(path).lexically_normal();
  if (file.filename() != "trainer_state.json") return "";
  const fs::path folder = file.parent_path();
  const bool copy = folder.filename().string().starts_with("checkpoint-");
  return (copy ? folder.parent_path() : folder).string();
}

}  // namespace

std::vector<FilePlace> PlaceFiles(const std::vector<std::string>& paths, bool by_folder,
                                  const ScalarOptions& options) {
  std::optional<std::regex> pattern;
  if (!options.rank_pattern.empty() && CheckRankPattern(options.rank_pattern).ok())
    pattern.emplace(options.rank_pattern);
  // First finds the place of each path, then the files of one run.
  std::vector<Path> placed(paths.size());
  for (size_t i = 0; i < paths.size(); ++i) FindRank(paths[i], pattern, &placed[i]);
  by_folder ? PlaceByFolder(&placed) : PlaceByFile(&placed);
  // Gives each run a name that distinguishes it from the others. A name that the user gives has
  // precedence.
  std::set<Names> keys;
  for (const Path& path : placed) keys.insert(path.key);
  const std::map<Names, std::string> names = NameKeys(keys);
  const bool within = keys.size() > 1 || options.within;
  std::string stated = options.run;
  while (stated.ends_with('/')) stated.pop_back();  // shells add '/' to a folder's name
  std::vector<FilePlace> places;
  for (Path& path : placed) {
    const std::string& name = names.at(path.key);
    path.place.run_stated = !stated.empty() && !within;
    if (within) path.place.within = stated;
    path.place.run = stated.empty() ? name : within ? stated + "/" + name : stated;
    places.push_back(std::move(path.place));
  }
  return places;
}

std::map<const InputReport*, std::string> CopiesAmong(const std::vector<StateFile>& files) {
  std::map<std::string, const StateFile*> longest;  // output folder -> longest file
  for (const StateFile& file : files) {
    const std::string output = OutputOf(file.report->path);
    if (output.empty()) continue;
    const StateFile*& kept = longest[output];
    const bool longer = kept == nullptr || file.bytes > kept->bytes ||
                        (file.bytes == kept->bytes && file.report->path < kept->report->path);
    if (longer) kept = &file;
  }
  // Returns all other files, except those that the user named.
  std::map<const InputReport*, std::string> copies;
  for (const StateFile& file : files) {
    const auto of = longest.find(OutputOf(file.report->path));
    if (of == longest.end() || file.report->named || of->second->report == file.report) continue;
    copies.emplace(file.report, of->second->report->path);
  }
  return copies;
}

std::string NoteOfCopy(const std::string& longest) {
  return "not read: an earlier copy of the log in " + longest + " has logged: not read";
}

absl::Status CheckRankPattern(const std::string& pattern) {
  try {
    if (std::regex(pattern).mark_count() >= 1) return absl::OkStatus();
  } catch (const std::regex_error&) {
    return absl::InvalidArgumentError("expected a regular expression");
  }
  return absl::InvalidArgumentError("expected a group, as in 'rank_(\\d+)'");
}

}  // namespace plumbline::audit
