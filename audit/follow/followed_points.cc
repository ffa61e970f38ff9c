#include "audit/follow/followed_points.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include "audit/readers/input/file.h"
#include "audit/readers/scalars/batches.h"

namespace plumbline::audit {
namespace {

using std::chrono::seconds;

constexpr seconds kLaneWait{5};  // wait for a lagging rank
// If nothing came for this long, a step is considered complete. Shorter than the time between two
// passes.
constexpr std::chrono::milliseconds kQuiet{150};
constexpr int kReadAgainShare = 10;  // reading all again takes at most one part in this many of the
                                     // time
constexpr size_t kManyFiles = 64;    // above this number, files that are long unchanged are closed
constexpr int64_t kLongAgo = 3600;   // seconds

std::string HeadOf(const std::string& path) {
  const absl::StatusOr<InputFile> file = InputFile::Open(path);
  if (!file.ok()) return "";
  return file->Head(Reader::kHeadBytes).value_or("");
}

bool SamePlace(const FilePlace& a, const FilePlace& b) {
  return a.run == b.run && a.rank == b.rank && a.prefix == b.prefix;
}

// Adds the counts of a file and of those that it replaced.
std::vector<SeriesSeen> Joined(const std::vector<SeriesSeen>& a, const std::vector<SeriesSeen>& b) {
  std::map<std::string, uint64_t> points;
  for (const auto* list : {&a, &b}) {
    for (const SeriesSeen& one : *list) points[one.name] += one.points;
  }
  std::vector<SeriesSeen> all;
  for (const auto& [name, count] : points) all.push_back({name, count});
  return all;
}

}  // namespace

FollowedPoints::FollowedPoints(const PointFormat& format, ScalarOptions options, PointLimits limits)
    : format_(format), options_(std::move(options)), limits_(limits) {
  runs_ = std::make_unique<PointRuns>();
  runs_->limits = limits_;
}

// Places the files that are read in runs.
void FollowedPoints::Place() {
  std::vector<File*> read;
  std::vector<std::string> paths;
  for (const auto& file : files_) {
    if (!file->copy_of.empty()) continue;
    read.push_back(file.get());
    paths.push_back(file->report->path);
  }
  std::vector<FilePlace> places = PlaceFiles(paths, format_.by_folder, options_);
  for (size_t i = 0; i < read.size(); ++i) {
    // If a new file appears in the folder, a known file's run may get another name, or the file may
    // belong to another run.
    again_ |= read[i]->sink != nullptr && !SamePlace(read[i]->place, places[i]);
    read[i]->place = std::move(places[i]);
  }
}

// Decides which files are copies and not read. Returns true if that changed. Points read from a
// copy are discarded.
bool FollowedPoints::SetCopiesAside() {
  std::vector<StateFile> states;
  for (const auto& file : files_) {
    if (!file->report->path.ends_with("trainer_state.json")) continue;
    const std::optional<FileStamp> stamp = StampOf(file->report->path);
    states.push_back({file->report, stamp ? stamp->size : file->report->bytes});
  }
  if (states.size() < 2) return false;
  const std::map<const InputReport*, std::string> copies = CopiesAmong(states);
  bool changed = false;
  for (const auto& file : files_) {
    const auto copy = copies.find(file->report);
    const std::string of = copy == copies.end() ? "" : copy->second;
    changed |= of.empty() != file->copy_of.empty();
    again_ |= !of.empty() && file->sink != nullptr;
    file->copy_of = of;
  }
  return changed;
}

void FollowedPoints::Add(const std::vector<InputReport*>& fresh) {
  for (InputReport* report : fresh) {
    File& file = *files_.emplace_back(std::make_unique<File>());
    file.report = report;
    file.head = HeadOf(report->path);
    file.begun = format_.begun == nullptr ? std::nan("") : format_.begun(report->path, file.head);
  }
  SetCopiesAside();
  Place();
  Order();
}

// Sorts the files as an audit reads them: by start time if all state it, otherwise by path.
void FollowedPoints::Order() {
  const bool timed = std::none_of(files_.begin(), files_.end(),
                                  [](const auto& file) { return std::isnan(file->begun); });
  std::stable_sort(files_.begin(), files_.end(), [&](const auto& a, const auto& b) {
    if (timed && a->begun != b->begun) return a->begun < b->begun;
    return a->report->path < b->report->path;
  });
}

// ---- one file --------------------------------------------------------------------------------

bool FollowedPoints::Open(File* file) {
  file->open = format_.open(file->report, options_);
  if (file->open == nullptr) return false;
  file->sink = std::make_unique<FileSink>(file->place, file->begun, runs_.get(), file->report);
  return true;
}

// Reads to the file's current end. Returns true if there was more.
bool FollowedPoints::ReadOn(File* file) {
  const uint64_t records = file->report->records, points = runs_->points;
  while (file->open->Read(file->sink.get())) {
  }
  file->report->bytes = file->bytes_before + file->open->bytes_read();
  return file->report->records != records || runs_->points != points;
}

// Closes a file that will not grow under this name. Its points stay counted.
void FollowedPoints::Shut(File* file) {
  if (file->open == nullptr) return;
  file->open->Close(file->sink.get());
  file->sink->Finish();
  left_out_ += file->sink->left_out();
  file->bytes_before += file->open->bytes_read();
  file->report->bytes = file->bytes_before;
  file->report->series = file->before = Joined(file->before, file->report->series);
  file->open.reset();
}

// Returns true if the file begins like the preceding file of this name, so that it holds the same
// steps again.
bool FollowedPoints::WrittenAnew(const File& file) const {
  if (file.report->path.ends_with(".json")) return true;
  const std::string head = HeadOf(file.report->path);
  const size_t both = std::min(head.size(), file.head.size());
  return both > 0 && head.compare(0, both, file.head, 0, both) == 0;
}

// Reads new content of one file. Returns true if there was any.
bool FollowedPoints::Look(File* file) {
  if (!file->copy_of.empty()) return false;
  const std::optional<FileStamp> stamp = StampOf(file->report->path);
  if (!stamp) return false;  // removed: another file may take its place
  if (stamp == file->stamp) return false;
  const bool first = !file->stamp;
  const bool replaced =
      !first && (!file->stamp->SameFile(*stamp) || stamp->size < file->stamp->size);
  const bool document = file->report->path.ends_with(".json");
  // If all files will be read again, reads this document then, because it may replace one that was
  // read.
  if (document && first && again_) return false;
  bool any = false;
  if (file->dormant || (document && !first) || (replaced && WrittenAnew(*file))) {
    again_ = true;
    return false;
  }
  if (replaced) {
    if (file->open != nullptr)
      any = ReadOn(file);  // content that was appended before the file was
                           // replaced
    Shut(file);
    file->head = HeadOf(file->report->path);
    if (format_.begun != nullptr) file->begun = format_.begun(file->report->path, file->head);
  }
  file->stamp = stamp;
  if (file->open == nullptr && !Open(file)) return any;
  if (file->head.size() < Reader::kHeadBytes && file->head.size() < stamp->size)
    file->head = HeadOf(file->report->path);
  any |= ReadOn(file);
  // A document yields its points when it is complete.
  if (document) Shut(file);
  const bool long_ago = stamp->changed_ns / 1'000'000'000 + kLongAgo < std::time(nullptr);
  if (first && long_ago && files_.size() > kManyFiles) {
    Shut(file);
    file->dormant = true;
  }
  return any || document;
}

// ---- all of them -----------------------------------------------------------------------------

// Reads all again. The longer it takes, the longer the wait until it may be repeated.
void FollowedPoints::ReadAgain() {
  const Clock::time_point begin = Clock::now();
  again_ = false;
  anew_ = true;
  lanes_.clear();
  for (const auto& file : files_) {
    file->sink.reset();
    file->open.reset();
  }
  runs_ = std::make_unique<PointRuns>();
  runs_->limits = limits_;
  left_out_ = 0;
  for (const auto& file : files_) {
    InputReport& report = *file->report;
    report.records = 0;
    report.problems.clear();
    report.series.clear();
    file->before.clear();
    file->bytes_before = 0;
    file->dormant = false;
    file->stamp.reset();
    file->head = HeadOf(report.path);
    Look(file.get());
  }
  again_at_ = Clock::now() + kReadAgainShare * (Clock::now() - begin);
}

bool FollowedPoints::Poll() {
  bool any = false;
  if (SetCopiesAside()) Place();
  for (const auto& file : files_) any |= Look(file.get());
  if (again_ && Clock::now() >= again_at_) {
    ReadAgain();
    any = true;
  }
  if (any) NoteLanes();
  return any;
}

// Records the newest step of each rank, and when its points last grew.
void FollowedPoints::NoteLanes() {
  const Clock::time_point now = Clock::now();
  for (const auto& [name, run] : runs_->runs) {
    const int64_t newest = NewestStep(run);  // newest step before the current arrival
    for (const auto& [rank, lane] : run.lanes) {
      Lane fresh;
      for (const PointSeries& series : lane.series) {
        if (series.chunks().empty()) continue;
        const SeriesChunk& chunk = series.chunks().back();
        fresh.points += chunk.steps.size();
        if (std::pair(chunk.attempt, chunk.newest) <= std::pair(fresh.attempt, fresh.newest))
          continue;
        fresh.attempt = chunk.attempt;
        fresh.newest = chunk.newest;
        fresh.first = chunk.steps[0];
      }
      Lane& known = lanes_[&lane];
      const bool same = known.points == fresh.points && known.attempt == fresh.attempt;
      fresh.at = same ? known.at : now;
      fresh.lag = known.lag;
      fresh.arrivals = known.arrivals + (same ? 0 : 1);
      const int64_t from = known.points == 0 ? fresh.first : known.newest;
      if (!same && fresh.attempt == known.attempt && newest > from)
        fresh.lag = std::max(fresh.lag, newest - from);
      known = fresh;
    }
  }
}

int64_t FollowedPoints::NewestStep(const RunPoints& run) const {
  const uint32_t attempt = NewestAttempt(run);
  int64_t newest = INT64_MIN;
  for (const auto& [rank, lane] : run.lanes) {
    const auto known = lanes_.find(&lane);
    if (known != lanes_.end() && known->second.attempt == attempt)
      newest = std::max(newest, known->second.newest);
  }
  return newest;
}

bool FollowedPoints::FellSilent(const std::string& run, uint32_t rank) const {
  constexpr int64_t kLags = 3;
  constexpr uint64_t kFewArrivals = 3;
  const auto of_run = runs_->runs.find(run);
  if (of_run == runs_->runs.end()) return false;
  const auto lane = of_run->second.lanes.find(rank);
  if (lane == of_run->second.lanes.end()) return false;
  const auto known = lanes_.find(&lane->second);
  if (known == lanes_.end()) return false;
  const Lane& of = known->second;
  const int64_t apart = NewestStep(of_run->second) - of.newest;
  const bool few = of.arrivals < kFewArrivals;
  return apart > (few ? std::max(of.newest - of.first, kLags * of.lag) : kLags * of.lag);
}

// Returns the step up to which all ranks have reported: the slowest rank that still grows limits
// it.
int64_t FollowedPoints::Through(const RunPoints& run) const {
  const Clock::time_point now = Clock::now();
  const uint32_t newest = NewestAttempt(run);
  int64_t through = INT64_MAX;
  bool quiet = true;
  for (const auto& [rank, lane] : run.lanes) {
    const auto known = lanes_.find(&lane);
    if (known == lanes_.end() || known->second.attempt != newest) continue;
    quiet &= now - known->second.at > kQuiet;
    if (now - known->second.at <= kLaneWait) through = std::min(through, known->second.newest - 1);
  }
  return quiet ? INT64_MAX : through;
}

uint64_t FollowedPoints::left_out() const {
  uint64_t all = left_out_;
  for (const auto& file : files_) {
    if (file->open != nullptr) all += file->sink->left_out();
  }
  return all;
}

void FollowedPoints::Close() {
  for (const auto& file : files_) {
    Shut(file.get());
    if (!file->copy_of.empty()) file->report->Note(NoteOfCopy(file->copy_of));
  }
}

}  // namespace plumbline::audit
