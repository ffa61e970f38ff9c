// What all runs together hold, kept within its bound: docs/decisions/0020.

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/judge/judge.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

// More than is needed closes at once: each time costs a commit of the journal.
constexpr uint64_t kSlack = 16;

}  // namespace

// The run that holds most closes its oldest steps, which is an event: so does a restart, and an
// audit of the stored run.
void Judge::KeepWithinBudget() {
  while (open_limit_ > 0 && !undecided_ && engine_->open_bytes() > open_limit_) {
    const std::string run = WhoGivesWay();
    if (quarantine_->Holds(run)) {
      RetryTakesTooMuch(run);
      continue;
    }
    const uint64_t over = engine_->open_bytes() - open_limit_ + open_limit_ / kSlack;
    const uint64_t held = engine_->open_bytes(run);
    v1::JudgeEvent event;
    event.mutable_make_room()->set_run(run);
    event.mutable_make_room()->set_bytes(held - std::min(held, over));
    LogWarning(
        "run {:?}: its oldest steps close: what all runs hold open is more than {} MiB "
        "(limits.open_bytes), and of them it holds {} MiB",
        run, open_limit_ >> 20, held >> 20);
    if (!KeepAndApply(std::move(event)).ok()) return;
    ++made_room_;
  }
}

void Judge::SetOwners(std::function<Owner(const std::string& run)> owner_of) {
  const MutexLock lock(owners_mutex_);
  owner_of_ = std::move(owner_of);
}

// A tenant with many runs must not make another one's large run the first to go.
std::string Judge::WhoGivesWay() const {
  const MutexLock lock(owners_mutex_);
  if (!owner_of_) return engine_->LargestRun();
  struct Held {
    double above = 0;  // bytes, as if the share were all
    uint64_t most = 0;
    std::string run;
  };
  std::map<std::string, Held> owners;
  for (const std::string& run : engine_->Runs()) {
    const uint64_t bytes = engine_->open_bytes(run);
    const Owner owner = owner_of_(run);
    Held& held = owners[owner.name];
    held.above += static_cast<double>(bytes) / owner.share;
    if (bytes <= held.most) continue;
    held.most = bytes;
    held.run = run;
  }
  const auto first = std::max_element(
      owners.begin(), owners.end(),
      [](const auto& a, const auto& b) { return a.second.above < b.second.above; });
  return first->second.run;
}

// Of a journal whose server closed these steps for want of room, too, if it had as little: then the
// event that says so comes next. So only a bound that was lowered is met here.
void Judge::KeepReplayWithinBudget(bool more_events) {
  if (!more_events) return KeepWithinBudget();
  while (open_limit_ > 0 && engine_->open_bytes() > open_limit_ + open_limit_ / 4) {
    const std::string run = engine_->LargestRun();
    const uint64_t held = engine_->open_bytes(run);
    engine_->Drop(run);
    quarantine_->Failed(
        run, absl::StrCat("its open steps hold ", held >> 20, " MiB, and all runs may hold ",
                          open_limit_ >> 20, " MiB (limits.open_bytes)"));
    TellHeld();
  }
}

void Judge::RetryTakesTooMuch(const std::string& run) {
  engine_->Drop(run);
  if (retry_ == nullptr || retry_->run.run() != run) return;
  EndRetry(absl::ResourceExhaustedError(
      absl::StrCat("its open steps and those of all other runs hold more than ", open_limit_ >> 20,
                   " MiB: raise limits.open_bytes")));
}

}  // namespace plumbline::server
