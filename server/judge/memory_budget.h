// Limits what all runs together hold of one kind: chooses the run that must free memory, and counts
// the bytes that runs have promised to free at their turn (docs/decisions/0020).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace plumbline::server {

// The owner of a run, and the share of the memory that the owner may hold. Empty name: the owner is
// unknown.
struct RunOwner {
  std::string name;
  double share = 1;
};

// Not thread-safe, except made_room. Calls with a limit of 0 free nothing.
class MemoryBudget {
 public:
  using OwnerOf = std::function<RunOwner(const std::string& run)>;
  // Returns the bytes that the runs hold now.
  struct Held {
    std::function<uint64_t()> all;
    std::function<uint64_t(const std::string& run)> of_run;
    std::function<std::vector<std::string>()> runs;
  };
  struct Request {
    std::string run;
    uint64_t bytes = 0;
  };

  MemoryBudget(Held held, uint64_t limit) : held_(std::move(held)), limit_(limit) {}

  uint64_t limit() const { return limit_; }
  uint64_t held(const std::string& run) const { return held_.of_run(run); }
  // Returns true if the runs hold more than the limit and a quarter.
  bool FarOver() const { return limit_ > 0 && held_.all() > limit_ + limit_ / 4; }
  bool promised() const { return promised_bytes_ > 0; }

  // Returns the run that must free memory now, and how much. Returns nothing if the limit holds
  // once every promise is kept, or if no run can free any. `owner_of` may be empty.
  std::optional<Request> Next(const OwnerOf& owner_of) const;
  // Returns the largest run of the owner that is furthest above its share, so that an owner with
  // many runs does not force a large run of another owner to free memory first.
  std::string FurthestAbove(const OwnerOf& owner_of) const;
  void Promise(const Request& request);
  // Ends the promise of the run. Returns the bytes to which it must shrink; nothing if it promised
  // none, or if that is no longer necessary.
  std::optional<uint64_t> TakePromise(const std::string& run);
  // Records that the run, which held `before`, was shrunk. If it freed nothing, it is not asked
  // again until it grows.
  void Shrunk(const std::string& run, uint64_t before);
  uint64_t made_room() const { return made_room_; }  // calls of Shrunk

 private:
  uint64_t CanFree(const std::string& run) const;

  const Held held_;
  const uint64_t limit_;
  std::map<std::string, uint64_t> promised_;
  uint64_t promised_bytes_ = 0;              // the sum
  std::map<std::string, uint64_t> in_vain_;  // bytes that runs held after they freed nothing
  std::atomic<uint64_t> made_room_{0};
};

}  // namespace plumbline::server
