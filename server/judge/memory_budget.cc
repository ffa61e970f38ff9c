#include "server/judge/memory_budget.h"

#include <algorithm>
#include <utility>

namespace plumbline::server {
namespace {

// Frees a sixteenth more than needed, because each time costs a commit of the journal.
constexpr uint64_t kSlack = 16;

}  // namespace

std::optional<MemoryBudget::Request> MemoryBudget::Next(const OwnerOf& owner_of) const {
  const uint64_t held = limit_ == 0 ? 0 : held_.all();
  if (held <= limit_ + promised_bytes_) return std::nullopt;
  Request request{FurthestAbove(owner_of)};
  const uint64_t over = held - promised_bytes_ - limit_ + limit_ / kSlack;
  request.bytes = std::min(CanFree(request.run), over);
  if (request.bytes == 0) return std::nullopt;
  return request;
}

std::string MemoryBudget::FurthestAbove(const OwnerOf& owner_of) const {
  struct Holder {
    double above = 0;  // bytes, divided by the share
    uint64_t most = 0;
    std::string run;
  };
  std::map<std::string, Holder> owners;
  for (const std::string& run : held_.runs()) {
    const uint64_t bytes = CanFree(run);
    const RunOwner owner = owner_of ? owner_of(run) : RunOwner();
    Holder& held = owners[owner.name];
    held.above += static_cast<double>(bytes) / owner.share;
    if (bytes <= held.most) continue;
    held.most = bytes;
    held.run = run;
  }
  const auto first = std::max_element(
      owners.begin(), owners.end(),
      [](const auto& a, const auto& b) { return a.second.above < b.second.above; });
  return first == owners.end() ? std::string() : first->second.run;
}

// Returns the bytes that a run holds and has not promised to free. If it freed nothing before and
// has hardly grown since, returns 0.
uint64_t MemoryBudget::CanFree(const std::string& run) const {
  const uint64_t held = held_.of_run(run);
  const auto in_vain = in_vain_.find(run);
  if (in_vain != in_vain_.end() && held <= in_vain->second + limit_ / kSlack) return 0;
  const auto promised = promised_.find(run);
  return held - std::min(held, promised == promised_.end() ? 0 : promised->second);
}

void MemoryBudget::Promise(const Request& request) {
  promised_[request.run] += request.bytes;
  promised_bytes_ += request.bytes;
}

std::optional<uint64_t> MemoryBudget::TakePromise(const std::string& run) {
  const auto promised = promised_.extract(run);
  if (promised.empty()) return std::nullopt;  // another call has used the promise
  promised_bytes_ -= promised.mapped();
  if (held_.all() <= limit_) return std::nullopt;
  const uint64_t held = held_.of_run(run);
  return held - std::min(held, promised.mapped());
}

void MemoryBudget::Shrunk(const std::string& run, uint64_t before) {
  ++made_room_;
  std::erase_if(in_vain_, [&](const auto& of) { return held_.of_run(of.first) == 0; });
  if (held_.of_run(run) >= before) in_vain_[run] = before;
}

}  // namespace plumbline::server
