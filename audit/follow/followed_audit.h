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

// What Finish gives is what RunAudit would say of all that was read. Files of scalars are read on;
// those of other formats are read whole when they have changed, at most a tenth of the time; so
// long are findings of them behind. Not thread-safe.
class FollowedAudit {
 public:
  using Clock = std::chrono::steady_clock;

  // InvalidArgument when rules or settings are wrong.
  static absl::StatusOr<std::unique_ptr<FollowedAudit>> Create(const AuditOptions& options);

  // Reads and judges what is new. True: the findings may be others.
  bool Look();
  // As they are now; those of which nothing shows any more are gone.
  const rules::Report& report() const { return judgement_->report(); }
  // What was said of the files so far.
  std::deque<InputReport> reports() const { return known_.Reports(false); }

  // The points of each format, for who tells them on; between two calls of Look.
  const std::vector<std::unique_ptr<FollowedPoints>>& points() const { return points_; }
  // True once after points that were told before became void.
  bool TakeAnew() { return std::exchange(anew_, false); }
  // Files of formats that have no points.
  bool others() const { return !others_.empty(); }

  // The files are at their end: judges all that is there as a whole. The last call.
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
  bool TellNew(bool all);
  void JudgeAnew(bool last);
  void ReportSoFar();
  bool FellSilent(const std::string& run, uint32_t rank) const;
  std::vector<std::unique_ptr<Source>> Sources();

  const AuditOptions options_;
  KnownFiles known_;
  std::vector<std::unique_ptr<FollowedPoints>> points_;
  std::vector<std::unique_ptr<PointCursor>> cursors_;  // the engine's, one a format
  std::vector<Other> others_;
  std::unique_ptr<Judgement> judgement_;
  bool stale_ = true;
  bool anew_ = false;
  Clock::time_point judge_at_{}, look_at_{};
};

}  // namespace plumbline::audit
