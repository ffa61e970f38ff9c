// A run's calls in CUDA graphs: captured once, and measured by the replays of each due step.
#include <algorithm>

#include "agent/core/run/run.h"
#include "base/clock.h"

namespace plumbline::agent {
namespace {

// Gives each captured call the request of its site at one step.
class StepOwner final : public probes::GraphOwner {
 public:
  StepOwner(RunState* state, int64_t step) : state_(*state), step_(step) {}

  probes::GraphWish Wish(void* site) override {
    const Site& s = *static_cast<const Site*>(site);
    const uint64_t* word = s.next_due.load(std::memory_order_acquire);
    probes::GraphWish wish;
    wish.due =
        word == nullptr || static_cast<uint64_t>(step_) >= __atomic_load_n(word, __ATOMIC_RELAXED);
    if (wish.due) wish.options = state_.OptionsOf(s, step_, state_.SampleDue(s, step_));
    return wish;
  }

  uint32_t Reserve(void* site, uint32_t captured, uint32_t replays, uint32_t expected) override {
    Site& s = *static_cast<Site*>(site);
    // If a site has calls on several devices, each device notes its share.
    const uint64_t all = std::max<uint64_t>(s.graph_calls.load(std::memory_order_relaxed), 1);
    s.NoteBytes(s.graph_sample_bytes.load(std::memory_order_relaxed) * captured / all,
                s.graph_summary_bytes.load(std::memory_order_relaxed) * captured / all * expected);
    return s.NextCalls(step_, captured * replays);
  }

  uint64_t ReserveOrders(uint64_t observations) override {
    return uint64_t{state_.observations.NextCalls(step_, static_cast<uint32_t>(observations))} + 1;
  }

 private:
  RunState& state_;
  const int64_t step_;
};

}  // namespace

plumbline_status_t Run::CaptureBegin(void* replays_on) {
  together_->Launch();  // the graph's streams may be captured next
  state_->replays_on.store(replays_on, std::memory_order_release);
  return PLUMBLINE_OK;
}

void Run::BeginGraphs(int64_t step) {
  const uint64_t begin = MonotonicNs();
  StepOwner owner(state_.get(), step);
  probes::DeviceReply reply;
  const bool due = state_->devices->BeginStep(step, &owner, &reply);
  Lost(reply, step);
  if (reply.crowded && !state_->rung.load(std::memory_order_relaxed)) state_->Ring();
  if (due) state_->governor.Charge(MonotonicNs() - begin);
}

void Run::EndGraphs(int64_t step) {
  probes::DeviceReply reply;
  state_->devices->EndStep(&reply);
  Lost(reply, step);
}

// Handles a step's captured calls together: they fail together.
void Run::Lost(const probes::DeviceReply& reply, int64_t step) {
  if (reply.outcome == probes::DeviceOutcome::kTaken) return;
  // The stream was correct when the calls were captured. If it is refused now, the device has
  // failed or the stream is gone.
  const bool failed = reply.outcome == probes::DeviceOutcome::kFailed ||
                      reply.outcome == probes::DeviceOutcome::kRefused;
  if (failed) ReportDevice(&state_->reported_failed, reply.error);
  state_->CountLoss(failed ? LossCause::kDeviceFailed : LossOf(reply.outcome), nullptr, step);
}

}  // namespace plumbline::agent
