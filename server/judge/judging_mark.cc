#include "server/judge/judging_mark.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
std::atomic<JudgingMarkPage*> noted{nullptr};
struct sigaction handled_before[std::size(kCrashes)];

// Uses only operations that a signal handler may use: words of a mapped page, system calls. The
// first crashing thread is recorded.
void NoteCrash(int signal) {
  if (JudgingMarkPage* page = noted.load()) {
    uint32_t none = 0;
    page->crashed.compare_exchange_strong(none, static_cast<uint32_t>(gettid()));
  }
  for (size_t i = 0; i < std::size(kCrashes); ++i) {
    if (kCrashes[i] == signal) sigaction(signal, &handled_before[i], nullptr);
  }
  raise(signal);  // blocked until this returns
}

}  // namespace

std::unique_ptr<JudgingMark> JudgingMark::Open(const std::string& path, std::vector<Found>* died,
                                               std::string* error) {
  died->clear();
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* mapped = MAP_FAILED;
  int failed = fd < 0 ? errno : 0;
  // Allocates the whole file at once: if the disk were full, a write to a page would raise SIGBUS.
  if (failed == 0) failed = posix_fallocate(fd, 0, sizeof(JudgingMarkPage));
  if (failed == 0) {
    mapped = mmap(nullptr, sizeof(JudgingMarkPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) failed = errno;
  }
  if (fd >= 0) close(fd);
  if (failed != 0) {
    *error = absl::StrCat(path, ": ", std::strerror(failed));
    return nullptr;
  }
  auto* page = static_cast<JudgingMarkPage*>(mapped);
  const bool whole = page->magic == JudgingMarkPage::kMagic;
  page->magic = JudgingMarkPage::kMagic;
  const uint32_t crashed = page->crashed.exchange(0);
  for (JudgingMarkPage::Place& place : page->places) {
    if (whole && place.busy.load() == 1 && place.length <= JudgingMarkPage::kNameBytes &&
        (crashed == 0 || place.thread == crashed))
      died->push_back({{place.run, place.length}, place.entry, place.replaying != 0, crashed != 0});
    place.busy.store(0);
    place.length = 0;
  }
  return std::unique_ptr<JudgingMark>(new JudgingMark(page));
}

JudgingMark::~JudgingMark() {
  JudgingMarkPage* mine = page_;
  noted.compare_exchange_strong(mine, nullptr);
  for (size_t place = 0; place < JudgingMarkPage::kPlaces; ++place) Leave(place);
  munmap(page_, sizeof(JudgingMarkPage));
}

size_t JudgingMark::Enter(std::string_view run, uint64_t entry, bool replaying) {
  thread_local const auto thread = static_cast<uint32_t>(gettid());
  run = run.substr(0, JudgingMarkPage::kNameBytes);
  for (size_t i = 0; i < JudgingMarkPage::kPlaces; ++i) {
    JudgingMarkPage::Place& place = page_->places[i];
    uint32_t free = 0;
    if (!place.busy.compare_exchange_strong(free, 2)) continue;
    if (run != std::string_view(place.run, place.length)) {
      std::copy(run.begin(), run.end(), place.run);
      place.length = static_cast<uint32_t>(run.size());
    }
    place.entry = entry;
    place.replaying = replaying ? 1 : 0;
    place.thread = thread;
    place.busy.store(1, std::memory_order_release);
    return i;
  }
  return JudgingMarkPage::kPlaces;
}

void JudgingMark::Leave(size_t place) {
  if (place < JudgingMarkPage::kPlaces)
    page_->places[place].busy.store(0, std::memory_order_release);
}

void JudgingMark::NoteCrashes() {
  noted = page_;
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_handler = NoteCrash;
    action.sa_flags = SA_ONSTACK;
    for (size_t i = 0; i < std::size(kCrashes); ++i)
      sigaction(kCrashes[i], &action, &handled_before[i]);
    return true;
  }();
  (void)installed;
}

}  // namespace plumbline::server
