// Runs that are not judged: those over whose evidence the process died again and again, and those
// that could not be judged within what memory there is. What they send is kept in the journal; a
// person decides whether it is judged after all (retried) or never will be (dropped).
//
//   DATA/quarantine   a line "plumbline.quarantine/1 CRC32C", then a v1::QuarantineState
//   DATA/judging      over whom the process is (judging_mark.h)
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "plumbline/v1/journal.pb.h"
#include "rules/engine/run_guard.h"
#include "server/judge/judging_mark.h"

namespace plumbline::server {

// Thread-safe.
class Quarantine : public rules::RunGuard {
 public:
  // A row of deaths over one run ends in quarantine at the weight kTooMany. At one entry of the
  // journal a death weighs more: a crash of the thread that judged it so much that two will do. One
  // that nobody saw (killed for its memory, or from outside) may be chance, but not three times at
  // one entry. Elsewhere in the journal judged again four in a row, of which none came further than
  // those before it.
  static constexpr uint32_t kSameCrash = 3;
  static constexpr uint32_t kSamePlace = 2;
  static constexpr uint32_t kTooMany = 4;

  // Takes up what a former process left in `directory`, and decides whether it died too often over
  // one run. Empty: nothing is kept, and nothing was.
  //
  // Of several runs that were judged at one time it is not known which it was, if none of their
  // threads was seen to crash. Nobody is held for
  // such a death: it only begins a row for each of them. What is judged again is judged one run at
  // a time, so whoever ends the process does it again there, alone, and is known.
  explicit Quarantine(const std::string& directory, std::function<int64_t()> unix_ns);

  // JudgingMark::NoteCrashes: of a process that is a server.
  void NoteCrashes() {
    if (mark_ != nullptr) mark_->NoteCrashes();
  }

  // ---- the judging threads': each is told for itself what it judges ----

  bool Begin(const std::string& run) override;
  void End() override;
  void Failed(const std::string& run, const std::string& what) override;
  // What Begin is about from now on.
  static void At(uint64_t entry, bool replaying);
  // While set, that run alone is judged, in quarantine or not; null: all that are not.
  static void Only(const std::string* run);
  // Told of each run that is put into quarantine from now on, by the thread that judges it. Before
  // anything is judged.
  void SetOnHeld(std::function<void(const v1::QuarantinedRun&)> on_held) {
    on_held_ = std::move(on_held);
  }

  // ---- anybody's ----

  // It is not judged.
  bool Holds(const std::string& run) const;
  // OK, or why nothing is taken of it any more. FailedPrecondition.
  absl::Status MayWrite(const std::string& run) const;
  std::optional<v1::QuarantinedRun> Find(const std::string& run) const;
  std::vector<v1::QuarantinedRun> List() const;
  size_t held() const { return held_; }  // dropped ones too
  size_t waiting() const;                // for somebody to decide

  static absl::Status NotHere(const std::string& run);  // NotFound
  // NotFound: it is not in quarantine. An error of the disk: nothing has changed.
  absl::Status Drop(const std::string& run);
  // Judged again as far as its journal goes. It is judged from now on; after a restart only once
  // Release has been called too, when a checkpoint knows what was judged.
  void Rejoin(const std::string& run);
  absl::Status Release(const std::string& run);

  // What came of it meanwhile and was not judged.
  void CountUnjudged(uint64_t items) { unjudged_ += items; }
  uint64_t unjudged() const { return unjudged_; }

 private:
  struct Entry {
    v1::QuarantinedRun run;
    bool rejoined = false;
  };

  // The constructor's: nobody else is there yet.
  void Load() PLUMB_NO_THREAD_SAFETY_ANALYSIS;
  void TakeDeath(const std::vector<JudgingMark::Found>& died) PLUMB_NO_THREAD_SAFETY_ANALYSIS;
  void CountDeath(const v1::QuarantineState::Death& before,
                  const JudgingMark::Found& died) PLUMB_NO_THREAD_SAFETY_ANALYSIS;
  void Hold(const std::string& run, uint64_t entry, const std::string& reason);
  absl::Status SaveLocked() const PLUMB_REQUIRES(mutex_);
  void CountLocked() PLUMB_REQUIRES(mutex_);

  const std::string directory_;
  const std::function<int64_t()> unix_ns_;
  std::unique_ptr<JudgingMark> mark_;  // null: nothing is kept
  std::function<void(const v1::QuarantinedRun&)> on_held_;

  std::atomic<size_t> held_{0};
  std::atomic<uint64_t> unjudged_{0};
  mutable Mutex mutex_;
  std::map<std::string, Entry> runs_ PLUMB_GUARDED_BY(mutex_);
  v1::QuarantineState::Death death_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
