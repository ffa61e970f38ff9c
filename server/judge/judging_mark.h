// Records which runs are being judged, in a mapped page of a file. A mark costs a few words of
// memory and survives the process, but not a crash of the host.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::server {

// Layout of the file: a place for each run that may be judged at the same time.
struct JudgingMarkPage {
  static constexpr uint64_t kMagic = 0x33'6b72'616d'626c'70;  // "plbmark3"
  static constexpr size_t kNameBytes = 65536;
  static constexpr size_t kPlaces = 32;

  struct Place {
    std::atomic<uint32_t> busy;  // 1: the following entry is being judged; 2: this mark is being
                                 // written
    uint32_t replaying;          // 1 for entries that an earlier process left
    uint64_t entry;              // of the journal
    uint32_t thread;             // its id
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
    bool crashed = false;  // true if its thread ended the process; false: not known
  };

  // Maps `path` and creates it if needed. Returns nullptr and sets `error` if that fails. `died`
  // gets the runs that the earlier process judged when it ended. If a thread is known to have
  // crashed, only its run is listed.
  static std::unique_ptr<JudgingMark> Open(const std::string& path, std::vector<Found>* died,
                                           std::string* error);
  ~JudgingMark();  // clears all places
  JudgingMark(const JudgingMark&) = delete;
  JudgingMark& operator=(const JudgingMark&) = delete;

  // Marks a run and returns its place. Returns kPlaces and marks nothing if none is free. A name
  // that is too long is cut, so that it matches no run.
  size_t Enter(std::string_view run, uint64_t entry, bool replaying);
  void Leave(size_t place);
  // Records crashes from now on: notes SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT in the file,
  // then handles them as before. A process that is killed from outside, or for lack of memory,
  // leaves no note. Only one mark of a process can do this: the last that called.
  void NoteCrashes();

 private:
  explicit JudgingMark(JudgingMarkPage* page) : page_(page) {}

  JudgingMarkPage* const page_;
};

}  // namespace plumbline::server
