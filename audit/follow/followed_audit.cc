#include "audit/follow/followed_audit.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include "audit/readers/scalars/batches.h"
#include "audit/readers/scalars/scalar_reader.h"

namespace plumbline::audit {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenFolders{400};
constexpr int kShare = 9;  // after a pass over all files, the next one waits kShare times as long
                           // as the pass took
constexpr int kFoldersShare = 19;                      // same for searching folders
constexpr uint64_t kWholeStream = 0x666f6c6c6f770001;  // plus one for each format
constexpr uint64_t kNewStream = 0x666f6c6c6f778001;

// The kept points of a format as a source, next to the sources of other files.
class KeptPoints : public Source {
 public:
  KeptPoints(FollowedPoints* points, uint64_t stream_id)
      : left_out_(points->left_out()),
        batches_(&points->runs(), stream_id, PointBatches::Points::kKept) {}

  Position position() const override { return batches_.position(); }
  bool Next(v1::Batch* batch) override {
    if (!batches_.Next(batch)) return false;
    if (left_out_ == 0) return true;
    v1::Loss& loss = *batch->add_losses();
    loss.set_source(0);
    loss.set_cause("reader-bound");
    loss.set_count(std::exchange(left_out_, 0));
    return true;
  }
  void Refused(const absl::Status& /*why*/) override {}  // reported when the points came
  uint64_t bytes_read() const override { return 0; }
  size_t files_done() const override { return 0; }
  std::vector<v1::Source> processes() const override { return {}; }

 private:
  uint64_t left_out_;
  PointBatches batches_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FollowedAudit>> FollowedAudit::Create(const AuditOptions& options) {
  std::unique_ptr<FollowedAudit> audit(new FollowedAudit(options));
  auto judgement = Judgement::Create(options.engine, options.collect_series);
  if (!judgement.ok()) return judgement.status();
  audit->judgement_ = *std::move(judgement);
  return audit;
}

FollowedAudit::FollowedAudit(const AuditOptions& options)
    : options_(options),
      known_(options.paths, options.forced, options.mapped, options.readers.scalars.step) {}

// Returns the points of a reader's format. The first format gets the run that --run names, and
// keeps it, because a server may have it already.
FollowedPoints* FollowedAudit::PointsOf(const ScalarReader& reader, InputReport* report) {
  for (const auto& points : points_) {
    if (&points->format() == &reader.points()) return points.get();
  }
  cursors_.push_back(std::make_unique<PointCursor>(kNewStream + points_.size()));
  const std::string_view first =
      points_.empty() ? reader.format() : std::string_view(points_.front()->format().name);
  ScalarOptions options = NextToFormat(options_.readers.scalars, reader.format(), first, report);
  return points_.emplace_back(std::make_unique<FollowedPoints>(reader.points(), std::move(options)))
      .get();
}

// Searches the folders for new files. Takes at most a twentieth of the time.
void FollowedAudit::LookForFiles(bool last) {
  const Clock::time_point begin = Clock::now();
  if (begin < look_at_ && !last) return;
  std::map<FollowedPoints*, std::vector<InputReport*>> fresh;
  std::vector<KnownFiles::Found> all = known_.Look(last);
  // Sort the formats in the order of an audit.
  const std::vector<const Reader*>& readers = Readers();
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) {
    return std::find(readers.begin(), readers.end(), a.reader) <
           std::find(readers.begin(), readers.end(), b.reader);
  });
  for (const KnownFiles::Found& found : all) {
    if (const auto* scalars = dynamic_cast<const ScalarReader*>(found.reader)) {
      fresh[PointsOf(*scalars, found.report)].push_back(found.report);
    } else {
      others_.push_back({found.reader, found.report, {}});
    }
  }
  for (const auto& [points, reports] : fresh) points->Add(reports);
  const Clock::time_point end = Clock::now();
  look_at_ = end + std::max<Clock::duration>(kBetweenFolders, kFoldersShare * (end - begin));
}

// Returns true if a file that holds no scalars has changed. Such files are small or written at
// once, so everything is judged again.
bool FollowedAudit::OthersChanged() {
  bool changed = false;
  for (Other& other : others_) {
    const std::optional<FileStamp> stamp = StampOf(other.report->path);
    if (!stamp || *stamp == other.stamp) continue;
    other.stamp = *stamp;
    changed = true;
  }
  return changed;
}

// Returns all sources as an audit would read them now: the kept points, and the other files read
// again.
std::vector<std::unique_ptr<Source>> FollowedAudit::Sources() {
  std::vector<std::unique_ptr<Source>> sources;
  for (size_t i = 0; i < points_.size(); ++i)
    sources.push_back(std::make_unique<KeptPoints>(points_[i].get(), kWholeStream + i));
  std::map<const Reader*, std::vector<InputReport*>> by_reader;
  for (const Other& other : others_) {
    other.report->records = 0;
    other.report->problems.clear();
    other.report->bytes = other.stamp.size;
    by_reader[other.reader].push_back(other.report);
  }
  for (const auto& [reader, reports] : by_reader) {
    for (auto& source : reader->OpenWith(reports, options_.readers))
      sources.push_back(std::move(source));
  }
  return sources;
}

// Judges everything from the beginning with a new engine. Rules and settings were checked before.
void FollowedAudit::JudgeAnew(bool last) {
  const Clock::time_point begin = Clock::now();
  stale_ = false;
  judgement_ = *Judgement::Create(options_.engine, options_.collect_series);
  judgement_->Read(Sources(), nullptr, {});
  for (size_t i = 0; i < points_.size(); ++i) {
    cursors_[i] = std::make_unique<PointCursor>(kNewStream + i);
    cursors_[i]->SkipAll(points_[i]->runs());
  }
  if (!last) ReportSoFar();
  const Clock::time_point end = Clock::now();
  judge_at_ = end + kShare * (end - begin);
}

void FollowedAudit::ReportSoFar() {
  stale_ |= !judgement_->ReportSoFar(
      [this](const std::string& run, uint32_t rank) { return FellSilent(run, rank); });
}

bool FollowedAudit::FellSilent(const std::string& run, uint32_t rank) const {
  return std::any_of(points_.begin(), points_.end(),
                     [&](const auto& points) { return points->FellSilent(run, rank); });
}

// Passes new points to the engine. If `all`, also points of steps that may be incomplete.
bool FollowedAudit::ReportNew(bool all) {
  const uint64_t before = judgement_->findings_reported();
  for (size_t i = 0; i < points_.size(); ++i) {
    for (auto& [name, run] : points_[i]->runs().runs) {
      const int64_t through = all ? INT64_MAX : points_[i]->Through(run);
      // If a point of a judged step arrives late (a rank may write its log in blocks), or if a
      // value has changed, everything must be judged again. The engine would count such points as
      // lost.
      for (v1::Batch batch; cursors_[i]->Next(&run, through, &batch);) {
        const bool late = cursors_[i]->TakeLate();
        stale_ |= late || !judgement_->Add(std::move(batch)).ok();
      }
      for (auto& [rank, lane] : run.lanes) {
        for (PointSeries& series : lane.series) stale_ |= series.TakeAltered();
      }
    }
    stale_ |= cursors_[i]->TakeLate();
  }
  if (!all) ReportSoFar();
  return judgement_->findings_reported() != before;
}

// Does one pass: finds new files, reads what was appended and judges it. If points that were judged
// have changed, judges everything again.
bool FollowedAudit::Look() {
  LookForFiles(false);
  for (const auto& points : points_) points->Poll();
  TakeVoid();
  stale_ |= OthersChanged();
  if (!stale_ || Clock::now() < judge_at_) return ReportNew(false);
  JudgeAnew(false);
  return true;
}

// Handles points that became invalid. The findings stay until everything is judged again.
void FollowedAudit::TakeVoid() {
  for (size_t i = 0; i < points_.size(); ++i) {
    if (!points_[i]->TakeAnew()) continue;
    anew_ = stale_ = true;
    cursors_[i] = std::make_unique<PointCursor>(kNewStream + i);
    cursors_[i]->SkipAll(points_[i]->runs());
  }
}

// Does the last pass, which includes steps that may be incomplete, so that the findings are those
// of an audit.
AuditResult FollowedAudit::Finish() {
  LookForFiles(true);
  for (const auto& points : points_) {
    points->Poll();
    points->Close();
  }
  TakeVoid();
  stale_ |= OthersChanged();
  stale_ |= judgement_->reported_so_far();
  if (!stale_) ReportNew(true);
  if (stale_) JudgeAnew(true);
  // Check whether any named path ever existed.
  std::deque<InputReport> reports = known_.Reports(true);
  const bool nothing = !reports.empty() && points_.empty() && others_.empty() &&
                       std::all_of(reports.begin(), reports.end(), [](const InputReport& report) {
                         std::error_code error;
                         return report.named && !std::filesystem::exists(report.path, error);
                       });
  for (const InputReport& report : reports) {
    if (report.format == "trainer-log") judgement_->ReportSentences(report.path);
  }
  AuditResult result = judgement_->Finish(std::move(reports));
  result.nothing_there = nothing;
  return result;
}

}  // namespace plumbline::audit
