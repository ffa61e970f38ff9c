#include "audit/commands/follow.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <thread>

#include "audit/commands/commands.h"
#include "audit/commands/point_sender.h"
#include "audit/follow/followed_audit.h"
#include "audit/live/stop_signal.h"

namespace plumbline::audit {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kPause{200}, kLongestPause{400};
constexpr int kLookShare = 4;  // a pause takes this many times as long as the preceding pass
constexpr milliseconds kPatience{10'000}, kPatienceAfterSignal{2'000};

// Raises the limit of open files: each followed file stays open.
void AllowManyFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Prints the problems of files as they come, each once.
class ProblemPrinter {
 public:
  void Update(const std::deque<InputReport>& reports) {
    for (const InputReport& report : reports) {
      size_t& stated = stated_[report.path];
      for (; stated < report.problems.size(); ++stated) {
        if (report.problems[stated].error) Fail(report.Line(report.problems[stated]));
      }
    }
  }

 private:
  std::map<std::string, size_t> stated_;  // problems already printed, by path
};

class Followed {
 public:
  Followed(std::unique_ptr<FollowedAudit> audit, const FollowOptions& options)
      : audit_(std::move(audit)),
        options_(options),
        printer_(options.format, StyleFor(STDOUT_FILENO)) {
    if (!options.send.empty()) sender_.emplace(options.send);
  }

  void Look() {
    const bool changed = audit_->Look();
    if (changed && options_.follow) Print();
    if (sender_) sender_->Send(*audit_, false);
  }

  // Follows until `stopped`, or until it is known that the server will never accept the points.
  void Follow(const std::atomic<bool>& stopped) {
    if (!options_.quiet && audit_->reports().empty())
      std::fprintf(stderr, "plumb: the path does not exist yet; waiting for it\n");
    Clock::duration took{};
    while (!stopped && !(sender_ && sender_->hopeless())) {
      std::this_thread::sleep_for(
          std::clamp<Clock::duration>(kLookShare * took, kPause, kLongestPause));
      const Clock::time_point begin = Clock::now();
      Look();
      problems_.Update(audit_->reports());
      took = Clock::now() - begin;
    }
  }

  AuditResult Finish(bool* unsent) {
    AuditResult result = audit_->Finish();
    if (!sender_) return result;
    const bool sent = sender_->Finish(*audit_, options_.follow ? kPatienceAfterSignal : kPatience);
    const std::string left = sender_->Left();
    *unsent = !sent || !left.empty();
    if (!left.empty()) Fail(left);
    return result;
  }

  const FollowedAudit& audit() const { return *audit_; }

 private:
  void Print() {
    const std::string text =
        printer_.Update(options_.selection.Of(audit_->report().findings()).shown);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  std::unique_ptr<FollowedAudit> audit_;
  const FollowOptions& options_;
  FollowPrinter printer_;
  ProblemPrinter problems_;
  std::optional<PointSender> sender_;
};

}  // namespace

absl::StatusOr<AuditResult> RunFollowed(const AuditOptions& options, const FollowOptions& follow,
                                        bool* unsent) {
  auto audit = FollowedAudit::Create(options);
  if (!audit.ok()) return audit.status();
  AllowManyFiles();
  const EndingSignalsBlocked blocked;
  std::atomic<bool> stopped{false};
  const StopSignal stop(0, [&stopped] { stopped = true; });
  Followed followed(*std::move(audit), follow);
  followed.Look();
  if (!follow.send.empty() && followed.audit().others()) {
    return absl::InvalidArgumentError(
        "--send: expected only files of scalars (tensorboard, wandb, csv, jsonl, trainer-log), "
        "found other formats; use plumb spool to send evidence that agents recorded");
  }
  if (follow.follow) followed.Follow(stopped);
  return followed.Finish(unsent);
}

}  // namespace plumbline::audit
