#include "audit/commands/point_sender.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "audit/live/client.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {
namespace {

constexpr double kQuerySeconds = 2;
constexpr uint64_t kFirstStream = 0x73656e64000001;

}  // namespace

PointSender::PointSender(std::string server) : server_(server), sender_(std::move(server)) {
  const auto runs = Client(server_).Runs(kQuerySeconds);
  if (!runs.ok()) return;  // if the error persists, the sender reports the reason
  for (const v1::RunInfo& run : runs->runs()) {
    const bool over = run.ranks_finished() >= run.ranks_seen();
    if (!over && run.newest_step() >= 0) held_[run.run()] = {run.attempt(), run.newest_step()};
  }
}

PointCursor& PointSender::CursorOf(const FollowedPoints* points) {
  std::unique_ptr<PointCursor>& cursor = cursors_[points];
  if (cursor == nullptr) {
    cursor = std::make_unique<PointCursor>(kFirstStream + cursors_.size());
    for (const auto& [run, at] : held_) cursor->SkipThrough(run, at.first, at.second);
  }
  return *cursor;
}

bool PointSender::Send(FollowedAudit& audit, bool all) {
  // Points that were read again equal those sent, up to the same steps: skip them.
  if (audit.TakeAnew()) {
    for (auto& [points, cursor] : cursors_) cursor->Forget();
  }
  v1::Batch batch;
  for (const auto& points : audit.points()) {
    PointCursor& cursor = CursorOf(points.get());
    for (auto& [name, run] : points->runs().runs) {
      const int64_t through = all ? INT64_MAX : points->Through(run);
      while (true) {
        if (!sender_.room()) return false;
        if (!cursor.Next(&run, through, &batch)) break;
        sender_.Push(std::move(batch));
      }
    }
  }
  return true;
}

bool PointSender::Finish(FollowedAudit& audit, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point last = Clock::now();
  uint64_t waiting = sender_.waiting();
  while (!hopeless() && !(all_given_ = Send(audit, true)) && Clock::now() - last < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (const uint64_t now = sender_.waiting(); now != waiting) last = Clock::now(), waiting = now;
  }
  v1::Batch batch;
  for (const auto& points : audit.points()) {
    for (const auto& [name, run] : points->runs().runs) {
      if (all_given_ && CursorOf(points.get()).Goodbye(run, &batch)) sender_.Push(std::move(batch));
    }
  }
  return sender_.Finish(patience) && all_given_;
}

std::string PointSender::Left() const {
  if (hopeless()) return absl::StrCat(server_, " refused all of it: ", sender_.hopeless());
  if (sender_.refused() > 0)
    return absl::StrCat(server_, " refused ", Plural(sender_.refused(), "batch", "batches"),
                        " of the data that were read");
  if (all_given_ && sender_.waiting() == 0) return "";
  return absl::StrCat(server_, " did not receive all data that were read: at least ",
                      Plural(sender_.waiting(), "batch", "batches"),
                      " are missing; run the same command again to send them");
}

}  // namespace plumbline::audit
