#include "audit/session/inputs.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "audit/readers/input/file.h"
#include "audit/readers/scalars/scalar_reader.h"
#include "audit/session/refusals.h"

namespace plumbline::audit {
namespace {

namespace fs = std::filesystem;

// Returns true if a file is a segment of a spool (transport/spool.h): its first frame names the
// schema.
bool IsSpoolSegment(const std::string& path, std::string_view head) {
  return fs::path(path).extension() == ".pls" && head.find("plumbline.spool/") < 64;
}

// Collects folders of spools for the notes of the report. In the order of paths, a spool's lock
// follows its segments.
class Spools {
 public:
  // Returns true if the file belongs to a spool.
  bool Take(const std::string& path, std::string_view head) {
    const fs::path folder = fs::path(path).parent_path();
    if (IsSpoolSegment(path, head)) {
      spools_.insert(folder);
      return true;
    }
    return fs::path(path).filename() == "lock" && spools_.count(folder) > 0;
  }

  std::vector<std::string> Notes() const {
    std::set<std::string> parents;
    for (const fs::path& spool : spools_) parents.insert(spool.parent_path().string());
    std::vector<std::string> notes;
    for (const std::string& parent : parents) {
      notes.push_back(
          parent +
          " is a spool: it contains evidence that no server has acknowledged; \"plumb spool send " +
          parent + "\" delivers it");
    }
    return notes;
  }

 private:
  std::set<fs::path> spools_;
};

// Collects files of a folder that no reader accepted, for the notes of the report: their number,
// and the first.
class UnreadFiles {
 public:
  void Add(const std::string& path, const std::string& head) {
    if (IsOfAim(path)) {
      if (aim_.empty()) aim_ = "found " + RefusalOfAim(path);
      return;
    }
    const bool log = LooksLikeLog(path, head);
    Count(path, log ? &logs_ : &files_, log ? &log_names_ : &names_);
  }

  std::vector<std::string> Notes() const {
    std::vector<std::string> notes;
    if (!aim_.empty()) notes.push_back(aim_);
    if (logs_ > 0) {
      notes.push_back((logs_ == 1 ? "1 file looks like a log and was"
                                  : std::to_string(logs_) + " files look like logs and were") +
                      (" not read: " + log_names_) +
                      "; a line needs a step, a name and a number, such as \"step 10: loss 2.5\"");
    }
    if (files_ > 0)
      notes.push_back((files_ == 1 ? "1 file has" : std::to_string(files_) + " files have") +
                      (" an unknown format: " + names_));
    return notes;
  }

 private:
  static constexpr size_t kMostNames = 4;

  static void Count(const std::string& path, size_t* count, std::string* names) {
    if (++*count <= kMostNames) {
      *names += (names->empty() ? "" : ", ") + path;
    } else if (*count == kMostNames + 1) {
      *names += ", ...";
    }
  }

  size_t files_ = 0, logs_ = 0;
  std::string names_, log_names_;
  std::string aim_;  // text about an aim repository
};

// Assigns each file that the user named to the reader that recognises it.
class Finder {
 public:
  Finder(const Reader* forced, const Reader* mapped, std::string step, Inputs* inputs)
      : forced_(forced), step_(std::move(step)), inputs_(inputs) {
    if (mapped != nullptr) inputs_->sets.push_back({mapped, {}});
    for (const Reader* reader : Readers()) inputs_->sets.push_back({reader, {}});
  }

  void Named(const std::string& path) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      Directory(path);
    } else {
      File(path, true);
    }
  }

  void Finish() {
    UnreadFiles unread;
    Spools spools;
    for (const auto& [report, head] : strangers_) {
      report->of_spool = spools.Take(report->path, head);
      if (report->of_spool) continue;
      LookNextTo(head.substr(0, kLook), report);
      if (report->format == "unknown") unread.Add(report->path, head);
    }
    inputs_->notes = unread.Notes();
    for (std::string& note : spools.Notes()) inputs_->notes.push_back(std::move(note));
    auto& sets = inputs_->sets;
    sets.erase(std::remove_if(sets.begin(), sets.end(),
                              [](const Inputs::Set& set) { return set.files.empty(); }),
               sets.end());
  }

 private:
  // Adds a directory. Links to directories are not followed, because they may form a cycle.
  void Directory(const std::string& path) {
    std::vector<std::string> files;
    std::error_code error;
    fs::recursive_directory_iterator entry(path, error);
    for (const fs::recursive_directory_iterator end; !error && entry != end;
         entry.increment(error)) {
      std::error_code ignored;
      if (entry->is_regular_file(ignored)) files.push_back(entry->path().string());
    }
    if (error) {
      inputs_->reports.emplace_back().path = path;
      inputs_->reports.back().Add(0, "expected a readable directory, found: " + error.message());
    }
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) File(file, false);
  }

  // Adds a file. A file that occurs twice, through a link or another spelling, is added once.
  void File(const std::string& path, bool named) {
    std::error_code error;
    const std::string canonical = fs::canonical(path, error).string();
    if (!error && !seen_.insert(canonical).second) return;
    InputReport& report = inputs_->reports.emplace_back();
    report.path = path;
    report.named = named;
    absl::StatusOr<InputFile> file = InputFile::Open(path);
    absl::StatusOr<std::string> head = file.ok() ? file->Head(Reader::kHeadBytes) : file.status();
    if (!head.ok()) {
      report.Add(0, std::string(head.status().message()));
      return;
    }
    report.bytes = file->size();
    Assign(*head, &report);
  }

  // Assigns a file by content, in the readers' order; then by the user's name of the step column.
  // If no reader recognises it, a named file is a problem, and a file of a folder may be part of
  // its neighbours.
  void Assign(const std::string& head, InputReport* report) {
    for (Inputs::Set& set : inputs_->sets) {
      const bool fits =
          forced_ != nullptr ? set.reader == forced_ : set.reader->Recognise(report->path, head);
      if (!fits) continue;
      return TakeIn(&set, report);
    }
    const Reader* by_step = forced_ == nullptr ? ReaderByStep(report->path, head, step_) : nullptr;
    for (Inputs::Set& set : inputs_->sets) {
      if (by_step != nullptr && set.reader == by_step) return TakeIn(&set, report);
    }
    if (!report->named) {
      strangers_.emplace_back(report, heads_ < kMostHeads ? head : head.substr(0, kLook));
      heads_ += head.size();
      return;
    }
    if (head.empty()) return report->Add(0, "expected content, found an empty file");
    report->Add(0, "expected a format that this version reads (" + ReadableFormats() + "), found " +
                       RefusalOf(report->path, head));
  }

  static void TakeIn(Inputs::Set* set, InputReport* report) {
    report->format = set->reader->format();
    set->files.push_back(report);
  }
  // Handles an unrecognised file that seems to belong to neighbouring files that were read: it must
  // not be skipped silently.
  void LookNextTo(const std::string& head, InputReport* report) {
    for (Inputs::Set& set : inputs_->sets) {
      if (set.files.empty()) continue;
      const Reader::Adjacent adjacent = set.reader->Judge(report->path, head, set.files);
      if (adjacent == Reader::Adjacent::kOfThem) return TakeIn(&set, report);
      if (adjacent == Reader::Adjacent::kAlike) {
        report->Note("among files of format " + std::string(set.reader->format()) +
                     ": it looks like one but is not valid; it was not read");
      }
    }
  }

  static constexpr size_t kLook = 16;  // bytes that identify a pickle

  const Reader* forced_;
  const std::string step_;
  Inputs* inputs_;
  static constexpr size_t kMostHeads = 64 << 20;

  std::set<std::string> seen_;
  size_t heads_ = 0;  // total bytes of heads in strangers_
  // Unrecognised files of directories with their first bytes, at most kMostHeads bytes in total.
  std::vector<std::pair<InputReport*, std::string>> strangers_;
};

}  // namespace

Inputs FindInputs(const std::vector<std::string>& paths, const Reader* forced, const Reader* mapped,
                  const std::string& step) {
  Inputs inputs;
  Finder finder(forced, mapped, step, &inputs);
  for (const std::string& path : paths) finder.Named(path);
  finder.Finish();
  return inputs;
}

}  // namespace plumbline::audit
