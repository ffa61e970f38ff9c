#include "server/judge/judging_mark.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace plumbline::server {

std::unique_ptr<JudgingMark> JudgingMark::Open(const std::string& path, std::optional<Found>* died,
                                               std::string* error) {
  died->reset();
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* mapped = MAP_FAILED;
  int failed = fd < 0 ? errno : 0;
  // The whole file at once: writing to a page for which a full disk has no room would be a SIGBUS.
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
  const bool whole = page->magic == JudgingMarkPage::kMagic &&
                     page->length <= JudgingMarkPage::kNameBytes && page->busy.load() == 1;
  if (whole) *died = Found{{page->run, page->length}, page->entry, page->replaying != 0};
  page->busy.store(0);
  page->magic = JudgingMarkPage::kMagic;
  page->length = 0;
  return std::unique_ptr<JudgingMark>(new JudgingMark(page));
}

JudgingMark::~JudgingMark() {
  Leave();
  munmap(page_, sizeof(JudgingMarkPage));
}

void JudgingMark::Enter(std::string_view run, uint64_t entry, bool replaying) {
  thread_local const auto thread = static_cast<uint32_t>(gettid());
  run = run.substr(0, JudgingMarkPage::kNameBytes);
  if (run != std::string_view(page_->run, page_->length)) {
    std::copy(run.begin(), run.end(), page_->run);
    page_->length = static_cast<uint32_t>(run.size());
  }
  page_->entry = entry;
  page_->replaying = replaying ? 1 : 0;
  page_->thread = thread;
  page_->busy.store(1, std::memory_order_release);
}

}  // namespace plumbline::server
