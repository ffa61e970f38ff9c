// An audit of files that are being written.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "audit/follow/followed_points.h"
#include "audit/follow/known_files.h"
#include "audit/follow/point_cursor.h"
#include "audit/readers/scalars/scalar_reader.h"
#include "audit/session/judgement.h"

namespace plumbline::audit {

// Finish returns the same as RunAudit for all files that were read. Files of scalars are read
// incrementally. Files of other formats are read whole when they have changed, in at most a tenth
// of the time, so their findings are delayed accordingly. Not thread-safe.
class FollowedAudit {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns InvalidArgument if rules or settings are wrong.
  static absl::StatusOr<std::unique_ptr<FollowedAudit>> Create(const AuditOptions& options);

  // Reads and judges new content. Returns true if the findings may have changed.
  bool Look();
  // Returns the current findings. Findings that the evidence no longer shows are removed.
  const rules::Report& report() const { return judgement_->report(); }
  // Returns the reports of the files so far.
  std::deque<InputReport> reports() const { return known_.Reports(false); }

  // Returns the points of each format, for a sender. Do not call during Look.
  const std::vector<std::unique_ptr<FollowedPoints>>& points() const { return points_; }
  // Returns true once after points that were already passed on became invalid.
  bool TakeAnew() { return std::exchange(anew_, false); }
  // Returns true if there are files of formats that have no points.
  bool others() const { return !others_.empty(); }

  // Judges everything as a whole, because the files are at their end. The last call.
  AuditResult Finish();

 private:
  struct Other {
    const Reader* reader;
    InputReport* report;
    FileStamp stamp;
  };

  explicit FollowedAudit(const AuditOptions& options);
  void LookForFiles(bool last);
  FollowedPoints* PointsOf(const ScalarReader& reader, InputReport* report);
  bool OthersChanged();
  void TakeVoid();
  bool ReportNew(bool all);
  void JudgeAnew(bool last);
  void ReportSoFar();
  bool FellSilent(const std::string& run, uint32_t rank) const;
  std::vector<std::unique_ptr<Source>> Sources();

  const AuditOptions options_;
  KnownFiles known_;
  std::vector<std::unique_ptr<FollowedPoints>> points_;
  std::vector<std::unique_ptr<PointCursor>> cursors_;  // the engine's cursors, one per format
  std::vector<Other> others_;
  std::unique_ptr<Judgement> judgement_;
  bool stale_ = true;
  bool anew_ = false;
  Clock::time_point judge_at_{}, look_at_{};
};

}  // namespace plumbline::audit
