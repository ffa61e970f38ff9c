// Whose evidence is being judged, where it outlives the process: a page of a file that is mapped,
// so that a mark costs a few words of memory and is there after any death but the host's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::server {

// What lies in the file: a place for each run that may be judged at one time.
struct JudgingMarkPage {
  static constexpr uint64_t kMagic = 0x33'6b72'616d'626c'70;  // "plbmark3"
  static constexpr size_t kNameBytes = 65536;
  static constexpr size_t kPlaces = 32;

  struct Place {
    std::atomic<uint32_t> busy;  // 1: what follows is being judged; 2: it is being written
    uint32_t replaying;          // of what a former process left
    uint64_t entry;              // of the journal
    uint32_t thread;             // of the process
    uint32_t length;             // of the name
    char run[kNameBytes];
  };
  uint64_t magic;
  std::atomic<uint32_t> crashed;  // the thread that ended the process by a signal of its own; or 0
  Place places[kPlaces];
};

// Thread-safe.
class JudgingMark {
 public:
  struct Found {
    std::string run;
    uint64_t entry = 0;
    bool replaying = false;
    bool crashed = false;  // its thread ended the process; false: that was not seen
  };

  // Maps `path`, made if it is not there; nullptr: that was not possible, `error` says why. `died`:
  // what the process before this one judged when it ended. Where a thread was seen to end it, what
  // others judged meanwhile is not told.
  static std::unique_ptr<JudgingMark> Open(const std::string& path, std::vector<Found>* died,
                                           std::string* error);
  ~JudgingMark();  // leaves all
  JudgingMark(const JudgingMark&) = delete;
  JudgingMark& operator=(const JudgingMark&) = delete;

  // The place it took; kPlaces: none is free, and nothing is marked. A name that is too long is
  // cut, which nobody's name is then.
  size_t Enter(std::string_view run, uint64_t entry, bool replaying);
  void Leave(size_t place);
  // From now on a crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) is noted in the file, then
  // handled as before. What is killed from outside, or for its memory, leaves no note. One mark of
  // a process can have it: the last that asked.
  void NoteCrashes();

 private:
  explicit JudgingMark(JudgingMarkPage* page) : page_(page) {}

  JudgingMarkPage* const page_;
};

}  // namespace plumbline::server
