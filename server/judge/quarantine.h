// Runs that are not judged: those during whose judging the process died repeatedly, and those that
// could not be judged within the memory limit. Their evidence is kept in the journal. A person
// decides whether it is judged later (retried) or never (dropped).
//
//   DATA/quarantine   a line "plumbline.quarantine/1 CRC32C", then a v1::QuarantineState
//   DATA/judging      the runs that the process judges (judging_mark.h)
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
#include "rules/engine/engine.h"
#include "server/judge/judging_mark.h"

namespace plumbline::server {

// Thread-safe.
class Quarantine : public rules::RunGuard {
 public:
  // Consecutive deaths during one run lead to quarantine once their weight is kTooMany. A death at
  // the same entry of the journal weighs more. If a thread is known to have crashed there, two
  // deaths are enough. A death of unknown cause (killed from outside or for lack of memory) may be
  // chance, but not three times at one entry. In other replayed entries, four in a row count if
  // none got further than the one before.
  static constexpr uint32_t kSameCrash = 3;
  static constexpr uint32_t kSamePlace = 2;
  static constexpr uint32_t kTooMany = 4;

  // Reads the files of an earlier process in `directory`, and decides whether it died too often
  // during one run. If `directory` is empty, nothing is stored or read.
  //
  // If several runs were judged at the same time and no crash of their threads was recorded, the
  // cause is unknown. No run is held for such a death: it only counts as the first death of each of
  // these runs. A replay judges one run at a time. So the run that ends the process ends it again
  // while no other run is judged, and is identified.
  explicit Quarantine(const std::string& directory, std::function<int64_t()> unix_ns);

  // Calls JudgingMark::NoteCrashes, for a process that is a server.
  void NoteCrashes() {
    if (mark_ != nullptr) mark_->NoteCrashes();
  }

  // ---- for judging threads: the state is per thread ----

  bool Begin(const std::string& run) override;
  void End() override;
  void Failed(const std::string& run, const std::string& what) override;
  // Sets the entry that later calls of Begin refer to.
  static void At(uint64_t entry, bool replaying);
  // While a run is set, only that run is judged, in quarantine or not. If null, all runs outside
  // quarantine are judged.
  static void Only(const std::string* run);
  // Sets a callback for each run that is put into quarantine from now on, on the thread that judges
  // it. Call before anything is judged.
  void SetOnHeld(std::function<void(const v1::QuarantinedRun&)> on_held) {
    on_held_ = std::move(on_held);
  }

  // ---- for any thread ----

  // Returns true if the run is not judged.
  bool Holds(const std::string& run) const;
  // Returns OK, or FailedPrecondition with the reason why the run's evidence is refused.
  absl::Status MayWrite(const std::string& run) const;
  std::optional<v1::QuarantinedRun> Find(const std::string& run) const;
  std::vector<v1::QuarantinedRun> List() const;
  size_t held() const { return held_; }  // dropped ones too
  size_t waiting() const;                // for a person's decision

  static absl::Status NotHere(const std::string& run);  // returns NotFound
  // Returns NotFound if the run is not in quarantine. If it returns an error of the disk, nothing
  // has changed.
  absl::Status Drop(const std::string& run);
  // Rejoin lets the run be judged again in this process, from its journal. Release makes this
  // permanent; call it when a checkpoint contains the judged items. Until then a restart holds the
  // run again.
  void Rejoin(const std::string& run);
  absl::Status Release(const std::string& run);

  // Counts evidence that arrived in quarantine and was not judged.
  void CountUnjudged(uint64_t items) { unjudged_ += items; }
  uint64_t unjudged() const { return unjudged_; }

 private:
  struct Entry {
    v1::QuarantinedRun run;
    bool rejoined = false;
  };

  // Called only by the constructor, so no lock is needed.
  void Load() PLUMB_NO_THREAD_SAFETY_ANALYSIS;
  void TakeDeath(const std::vector<JudgingMark::Found>& died) PLUMB_NO_THREAD_SAFETY_ANALYSIS;
  void CountDeath(const v1::QuarantineState::Death& before,
                  const JudgingMark::Found& died) PLUMB_NO_THREAD_SAFETY_ANALYSIS;
  void Hold(const std::string& run, uint64_t entry, const std::string& reason);
  absl::Status SaveLocked() const PLUMB_REQUIRES(mutex_);
  void CountLocked() PLUMB_REQUIRES(mutex_);

  const std::string directory_;
  const std::function<int64_t()> unix_ns_;
  std::unique_ptr<JudgingMark> mark_;  // null: nothing is stored
  std::function<void(const v1::QuarantinedRun&)> on_held_;

  std::atomic<size_t> held_{0};
  std::atomic<uint64_t> unjudged_{0};
  mutable Mutex mutex_;
  std::map<std::string, Entry> runs_ PLUMB_GUARDED_BY(mutex_);
  v1::QuarantineState::Death death_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
