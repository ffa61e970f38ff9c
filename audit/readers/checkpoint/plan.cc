#include "audit/readers/checkpoint/plan.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "audit/readers/checkpoint/contents.h"
#include "audit/readers/checkpoint/distributed.h"
#include "audit/readers/checkpoint/index.h"

namespace plumbline::audit {
namespace {

namespace fs = std::filesystem;

// A file, its place from the path, and the facts in its content.
struct FoundFile {
  PlannedFile planned;
  CheckpointPlace place;
  std::optional<int64_t> step;  // step in the content
  bool readable = false;
  ShardTensors shard;
};

// Returns the name with each number replaced by '#'.
std::string WithoutNumbers(const std::string& name) {
  std::string out;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) out += c;
    if (digit && (out.empty() || out.back() != '#')) out += '#';
  }
  return out;
}

// Finds checkpoints that lack the file of a rank which other steps of the run have.
class RankFiles {
 public:
  // Takes one file of the plan. `folder` is the path of its run. Files without a rank are ignored.
  void Take(const PlannedFile& file, const std::string& folder);
  // Adds a problem to the report of a step's first file for each missing one; a note for the newest
  // step, which may still be written.
  void Check() const;

 private:
  using Tag = std::tuple<uint32_t, uint32_t, uint32_t>;  // stage, tensor, data
  struct OneFile {
    const PlannedFile* file = nullptr;
    uint64_t bytes = 0;
    std::string name;  // path below the run
  };
  // The files of one kind in one step.
  using OfStep = std::map<Tag, OneFile>;
  using OfKind = std::map<int64_t, OfStep>;

  static void CheckKind(const OfKind& steps);
  static bool IsMissing(const OfKind& steps, OfKind::const_iterator step, const Tag& tag);

  std::map<std::pair<std::string, std::string>, OfKind> kinds_;  // by run and name without digits
};

void RankFiles::Take(const PlannedFile& file, const std::string& folder) {
  if (!file.tag.ranked) return;
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(file.path, error);
  const std::string name = whole.lexically_normal().lexically_relative(folder).string();
  const uint64_t bytes = std::filesystem::file_size(file.path, error);
  kinds_[{file.run, WithoutNumbers(name)}][file.step][file.tag.Order()] = {&file, error ? 0 : bytes,
                                                                           name};
}

// A file is missing if files of higher ranks are there, or if the steps before and after have it
// and the files of other ranks have the same size: then the number of ranks did not change.
bool RankFiles::IsMissing(const OfKind& steps, OfKind::const_iterator step, const Tag& tag) {
  if (step->second.contains(tag)) return false;
  if (tag < step->second.rbegin()->first) return true;
  if (step == steps.begin() || std::next(step) == steps.end()) return false;
  const OfStep &before = std::prev(step)->second, &after = std::next(step)->second;
  if (!before.contains(tag) || !after.contains(tag)) return false;
  const auto& [first, file] = *step->second.begin();
  const auto earlier = before.find(first);
  if (earlier == before.end()) return false;
  const uint64_t was = earlier->second.bytes, is = file.bytes;
  return 50 * (was > is ? was - is : is - was) <= is;
}

void RankFiles::CheckKind(const OfKind& steps) {
  // The files that at least two steps have.
  std::map<Tag, const OneFile*> once, known;
  for (const auto& [step, files] : steps) {
    for (const auto& [tag, file] : files) {
      if (!once.emplace(tag, &file).second) known.emplace(tag, &file);
    }
  }
  for (const auto& [tag, file] : known) {
    std::vector<OfKind::const_iterator> missing;
    for (auto step = steps.begin(); step != steps.end(); ++step) {
      if (IsMissing(steps, step, tag)) missing.push_back(step);
    }
    // If many steps lack it, the rank saves less often, or old files were deleted.
    if (missing.size() > std::max<size_t>(1, steps.size() / 4)) continue;
    for (const OfKind::const_iterator& step : missing) {
      InputReport* report = step->second.begin()->second.file->report;
      const std::string text = "expected the file of step " + std::to_string(step->first) +
                               " that another step has as " + Quoted(file->name) + ", found none";
      if (std::next(step) == steps.end()) {
        report->Note(text);
      } else {
        report->Add(0, text);
      }
    }
  }
}

void RankFiles::Check() const {
  for (const auto& [key, steps] : kinds_) CheckKind(steps);
}

class Planner {
 public:
  explicit Planner(const std::vector<InputReport*>& files) : reports_(files) {}

  std::vector<PlannedFile> Plan() {
    std::vector<InputReport*> indexes, distributed;
    for (InputReport* report : reports_) {
      if (!report->named && IsLeftover(report->path)) {
        report->Note("not read: according to its name, the writer had not finished this file");
      } else if (fs::path(report->path).filename() == ".metadata") {
        distributed.push_back(report);
      } else if (report->path.ends_with(".index.json")) {
        indexes.push_back(report);
      } else {
        Find(report, report->path);
      }
    }
    for (InputReport* report : indexes) TakeIndex(report);
    for (InputReport* report : distributed) TakeDistributed(report);
    NameRuns();
    SetApart();
    NameSteps();
    NameRanks();
    std::vector<PlannedFile> plans;
    for (const FoundFile& file : files_) ranks_.Take(file.planned, file.place.path);
    ranks_.Check();
    for (FoundFile& file : files_) {
      if (file.readable) plans.push_back(std::move(file.planned));
    }
    std::sort(plans.begin(), plans.end(), [](const PlannedFile& a, const PlannedFile& b) {
      return std::tie(a.run, a.step, a.rank, a.path) < std::tie(b.run, b.step, b.rank, b.path);
    });
    return plans;
  }

 private:
  static std::string WholePath(const std::string& path) {
    std::error_code error;
    const fs::path whole = fs::canonical(path, error);
    return error ? path : whole.string();
  }

  // Reads everything of a file except its tensors.
  FoundFile& Find(InputReport* report, const std::string& path) {
    FoundFile& found = files_.emplace_back();
    by_path_[WholePath(path)] = files_.size() - 1;
    found.planned.report = report;
    found.planned.path = path;
    found.place = PlaceOf(path);
    found.planned.tag = found.place.rank;
    absl::StatusOr<InputFile> file = InputFile::Open(path);
    if (!file.ok()) {
      report->Add(0, std::string(file.status().message()));
      return found;
    }
    CheckpointContents contents;
    FileFindings findings;
    const auto problem = ReadContents(path, *file, &contents, &findings);
    for (Problem& one : findings.problems) report->Add(one.offset, std::move(one.text));
    for (std::string& note : findings.notes) report->Note(std::move(note));
    if (problem) {
      report->Add(problem->offset, problem->text);
      return found;
    }
    found.readable = true;
    found.step = contents.step;
    for (const NamedTensor& tensor : contents.tensors)
      found.shard.tensors.emplace_back(tensor.name, tensor.place.bytes());
    if (found.place.step && found.step && *found.place.step != *found.step) {
      report->Note("step " + std::to_string(*found.place.step) +
                   " according to its name, which is used; its content states " +
                   std::to_string(*found.step));
    }
    return found;
  }

  // Adds the shards of an index. Also reads shards that the user did not name, under the report of
  // their index.
  void TakeIndex(InputReport* report) {
    ShardIndex index;
    absl::StatusOr<InputFile> file = InputFile::Open(report->path);
    if (!file.ok()) return report->Add(0, std::string(file.status().message()));
    if (auto problem = ReadShardIndex(*file, &index)) {
      return report->Add(problem->offset, std::move(problem->text));
    }
    const fs::path folder = fs::path(report->path).parent_path();
    std::vector<ShardTensors> shards;
    std::set<std::string> missing;
    for (const std::string& shard : index.shards) {
      const std::string path = (folder / shard).string();
      std::error_code error;
      const auto known = by_path_.find(WholePath(path));
      if (known == by_path_.end() && !fs::exists(path, error)) {
        missing.insert(shard);
        continue;
      }
      FoundFile& found = known == by_path_.end() ? Find(report, path) : files_[known->second];
      if (!found.readable) {
        missing.insert(shard);
        continue;
      }
      found.shard.shard = shard;
      shards.push_back(found.shard);
    }
    std::string note;
    for (Problem& problem : CheckShards(index, shards, missing, &note))
      report->Add(problem.offset, std::move(problem.text));
    if (!note.empty()) report->Note(std::move(note));
  }

  // Adds the parts of a distributed index. Also reads parts that the user did not name, under the
  // report of their index.
  void TakeDistributed(InputReport* report) {
    DistributedIndex index;
    FileFindings findings;
    absl::StatusOr<InputFile> file = InputFile::Open(report->path);
    if (!file.ok()) return report->Add(0, std::string(file.status().message()));
    const auto problem = ReadDistributedIndex(*file, &index, &findings);
    for (Problem& one : findings.problems) report->Add(one.offset, std::move(one.text));
    for (std::string& note : findings.notes) report->Note(std::move(note));
    if (problem) return report->Add(problem->offset, problem->text);
    const fs::path folder = fs::path(report->path).parent_path();
    for (const auto& [name, entries] : index.files) {
      const std::string path = (folder / name).string();
      std::error_code error;
      if (by_path_.contains(WholePath(path))) continue;
      if (fs::exists(path, error)) {
        Find(report, path);
      } else {
        report->Add(
            0, "expected the part " + Quoted(name) + " in the folder of its index, found none");
      }
    }
  }

  // If runs in several folders have the same name, names them by their path.
  void NameRuns() {
    std::map<std::string, std::set<std::string>> paths;
    for (const FoundFile& file : files_) paths[file.place.run].insert(file.place.path);
    for (FoundFile& file : files_) {
      const bool alone = paths[file.place.run].size() == 1;
      file.planned.run = alone ? file.place.run : file.place.path;
    }
  }

  // Separates a final model that is next to checkpoint-500, checkpoint-1000, ... It has no known
  // step, so it is not part of their series.
  void SetApart() {
    std::set<std::string> named;
    for (const FoundFile& file : files_) {
      if (file.place.step) named.insert(file.planned.run);
    }
    for (FoundFile& file : files_) {
      if (file.place.step || file.step || !named.contains(file.planned.run)) continue;
      file.planned.apart = true;
      file.planned.run += " (without a step)";
    }
  }

  // If neither the name nor the content of a file has a step, uses the one step that the folder's
  // other files have.
  void NameSteps() {
    std::map<std::string, std::set<int64_t>> steps;
    for (const FoundFile& file : files_) {
      if (!file.place.step && file.step) steps[file.planned.run].insert(*file.step);
    }
    for (FoundFile& file : files_) {
      const std::set<int64_t>& others = steps[file.planned.run];
      const int64_t fallback = others.size() == 1 ? *others.begin() : 0;
      file.planned.reported_step = file.step;
      file.planned.step = file.place.step.value_or(file.step.value_or(fallback));
    }
  }

  void NameRanks() {
    using Tag = std::tuple<uint32_t, uint32_t, uint32_t>;
    std::map<std::string, std::set<Tag>> tags;
    const auto tag_of = [](const FoundFile& f) {
      return Tag(f.place.rank.stage, f.place.rank.tensor, f.place.rank.data);
    };
    for (const FoundFile& file : files_) {
      if (file.place.rank.ranked) tags[file.planned.run].insert(tag_of(file));
    }
    for (FoundFile& file : files_) {
      if (!file.place.rank.ranked) continue;
      const std::set<Tag>& all = tags[file.planned.run];
      file.planned.rank = static_cast<uint32_t>(std::distance(all.begin(), all.find(tag_of(file))));
    }
  }

  const std::vector<InputReport*>& reports_;
  std::deque<FoundFile> files_;
  std::map<std::string, size_t> by_path_;
  RankFiles ranks_;
};

}  // namespace

std::vector<PlannedFile> PlanCheckpoints(const std::vector<InputReport*>& files) {
  return Planner(files).Plan();
}

std::vector<PlannedFile> PlansSince(std::vector<PlannedFile> plans, int64_t since) {
  std::map<std::string, std::set<int64_t>> before;  // run -> its newest steps before `since`
  for (const PlannedFile& plan : plans) {
    std::set<int64_t>& steps = before[plan.run];
    if (plan.step < since) steps.insert(plan.step);
    if (steps.size() > kReadBefore) steps.erase(steps.begin());
  }
  std::vector<PlannedFile> kept;
  for (PlannedFile& plan : plans) {
    if (plan.step >= since || before[plan.run].contains(plan.step)) {
      kept.push_back(std::move(plan));
    } else {
      plan.report->Note("step " + std::to_string(plan.step) +
                        " was not read: only findings from step " + std::to_string(since) +
                        " on are requested");
    }
  }
  return kept;
}

}  // namespace plumbline::audit
