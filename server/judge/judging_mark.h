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
  static constexpr uint64_t kMagic = 0x32'6b72'616d'626c'70;  // "plbmark2"
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
  Place places[kPlaces];
};

// Thread-safe.
class JudgingMark {
 public:
  struct Found {
    std::string run;
    uint64_t entry = 0;
    bool replaying = false;
  };

  // Maps `path`, made if it is not there; nullptr: that was not possible, `error` says why. `died`:
  // what the process before this one judged when it ended.
  static std::unique_ptr<JudgingMark> Open(const std::string& path, std::vector<Found>* died,
                                           std::string* error);
  ~JudgingMark();  // leaves all
  JudgingMark(const JudgingMark&) = delete;
  JudgingMark& operator=(const JudgingMark&) = delete;

  // The place it took; kPlaces: none is free, and nothing is marked. A name that is too long is
  // cut, which nobody's name is then.
  size_t Enter(std::string_view run, uint64_t entry, bool replaying);
  void Leave(size_t place);

 private:
  explicit JudgingMark(JudgingMarkPage* page) : page_(page) {}

  JudgingMarkPage* const page_;
};

}  // namespace plumbline::server
