// Decisions that the journal writes while other work continues, so that decisions about many runs
// share a commit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/journal/journal.h"
#include "server/judge/fair_queue.h"

namespace plumbline::server {

// Every call needs the turn (judge_threads.h); the journal calls back on its own thread.
class LaterDecisions {
 public:
  struct Decision {
    FairQueue::Begun begun;
    uint64_t after = 0;  // the entry after which it takes effect
    absl::StatusOr<EntryPrefix> committed = absl::UnavailableError("the journal stopped");
  };

  // `wake` is called on the journal's thread when a decision is written or was refused.
  explicit LaterDecisions(std::function<void()> wake) : wake_(std::move(wake)) {}

  // Appends the entry of the decision to the journal. `journal` and this must outlive its callback.
  void Write(Journal* journal, JournalEntry entry, std::shared_ptr<Decision> decision) {
    ++taken_in_;
    const auto over = [this, decision] {
      {
        const MutexLock lock(mutex_);
        over_.push_back(decision);
      }
      wake_();
    };
    journal->Append(
        std::move(entry),
        [decision, over](const EntryPrefix& prefix) {
          decision->committed = prefix;
          over();
        },
        over);
  }

  // Returns a decision that the journal holds, or could not take; null if there is none.
  std::shared_ptr<Decision> Take() {
    if (taken_in_ == 0) return nullptr;
    const MutexLock lock(mutex_);
    if (over_.empty()) return nullptr;
    auto decision = std::move(over_.front());
    over_.pop_front();
    --taken_in_;
    return decision;
  }

  // Returns the number of decisions that were written and not taken.
  size_t size() const { return taken_in_; }

 private:
  const std::function<void()> wake_;
  size_t taken_in_ = 0;
  Mutex mutex_;
  std::deque<std::shared_ptr<Decision>> over_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
