// Whose evidence is being judged, where it outlives the process: a page of a file that is mapped,
// so that a mark costs a few words of memory and is there after any death but the host's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace plumbline::server {

// What lies in the file.
struct JudgingMarkPage {
  static constexpr uint64_t kMagic = 0x31'6b72'616d'626c'70;  // "plbmark1"
  static constexpr size_t kNameBytes = 65536;

  uint64_t magic;
  std::atomic<uint32_t> busy;  // 1: what follows is being judged
  uint32_t replaying;          // of what a former process left
  uint64_t entry;              // of the journal
  uint32_t thread;             // of the process
  uint32_t length;             // of the name
  char run[kNameBytes];
};

// Used by one thread.
class JudgingMark {
 public:
  struct Found {
    std::string run;
    uint64_t entry = 0;
    bool replaying = false;
  };

  // Maps `path`, made if it is not there; nullptr: that was not possible, `error` says why. `died`:
  // over what the process before this one ended, if over anything.
  static std::unique_ptr<JudgingMark> Open(const std::string& path, std::optional<Found>* died,
                                           std::string* error);
  ~JudgingMark();  // leaves
  JudgingMark(const JudgingMark&) = delete;
  JudgingMark& operator=(const JudgingMark&) = delete;

  // A name that is too long is cut, which nobody's name is then.
  void Enter(std::string_view run, uint64_t entry, bool replaying);
  void Leave() { page_->busy.store(0, std::memory_order_release); }

 private:
  explicit JudgingMark(JudgingMarkPage* page) : page_(page) {}

  JudgingMarkPage* const page_;
};

}  // namespace plumbline::server
