#include "bench/server/simulated_stream.h"

#include <algorithm>
#include <utility>

#include "tests/server/support.h"

namespace plumbline::bench {
namespace {

constexpr uint64_t kSet = 1;
constexpr size_t kNoise = 8192;  // pool of values for rows
constexpr size_t kMostLatencies = 20000;

uint32_t RanksOf(const SimulatorOptions& options, uint32_t stream) {
  const uint32_t first = stream * options.ranks_per_stream;
  return std::min(options.ranks_per_stream, options.ranks - first);
}

}  // namespace

std::string FaultLayer(int64_t step) { return "simulated." + std::to_string(step); }

SimulatedStream::SimulatedStream(const SimulatorOptions& options, uint32_t index,
                                 grpc::CompletionQueue* events)
    : options_(options),
      index_(index),
      events_(events),
      outbox_({256u << 20, 2 * options.window + 8}),
      random_(options.seed * 1'000'003 + index) {
  config_.target = options.server;
  config_.tool_version = "simulator";
  // A new id each time, as for a new process: a server remembers streams.
  std::random_device entropy;
  config_.stream_id = (uint64_t{entropy()} << 32 | entropy()) | 1;
  for (uint32_t r = 0; r < RanksOf(options, index); ++r) {
    config_.sources.push_back(test::SourceOf(options.run, index * options.ranks_per_stream + r,
                                             options.ranks, options.attempt));
  }
  // Without a rate all of its steps are done, as after an outage, and only wait to be sent.
  if (options.rate > 0) {
    config_.newest_step = [this] { return next_step_ - 1; };
  } else {
    config_.newest_step = [this] { return options_.steps - 1; };
    config_.unproduced = [this] {
      const int64_t left = options_.steps - next_step_;
      if (left == 0) return transport::Unproduced();
      return transport::Unproduced{
          static_cast<uint64_t>((left + options_.batch_steps - 1) / options_.batch_steps),
          next_step_};
    };
  }
  config_.on_acknowledged = [this](uint64_t through) { OnAcknowledged(through); };
  channel_ = *transport::MakeChannel(config_);
  // Like training curves: a slow drift and noise, with the digits of a float.
  std::normal_distribution<float> normal(0, 0.01f);
  for (size_t i = 0; i < kNoise; ++i) noise_.push_back(static_cast<double>(2.0f + normal(random_)));
  for (const v1::Source& s : config_.sources) *batch_.add_sources() = s;
  pace = 0.8 + 0.4 * static_cast<double>(random_() % 1000) / 1000;
}

void SimulatedStream::Dial() {
  connection_ =
      std::make_unique<transport::Connection>(config_, &outbox_, &counters_, channel_, events_);
  if (AllProduced()) connection_->Finish();
  connection_->Start();
}

void SimulatedStream::Turn(Clock::time_point now) {
  if (over_) return;
  if (connection_ == nullptr) return Dial();
  if (!connection_->finished()) {
    if (AllProduced()) connection_->Finish();
    return connection_->Tick();
  }
  over_ = AllProduced() && outbox_.state().empty();
  if (over_) return;
  if (dial_at_ == Clock::time_point()) {
    ++breaks_;
    dial_at_ = now + std::chrono::milliseconds(config_.backoff_first_ms);
  } else if (now >= dial_at_) {
    dial_at_ = {};
    Dial();
  }
}

bool SimulatedStream::Produce(Clock::time_point began) {
  if (AllProduced() || !HasRoom()) return false;
  const int64_t first = next_step_;
  const int64_t count = std::min<int64_t>(options_.batch_steps, options_.steps - first);
  next_step_ += count;
  batch_.clear_evidence();
  batch_.clear_progress();
  batch_.clear_series_sets();
  if (first == 0) {
    v1::SeriesSet* set = batch_.add_series_sets();
    set->set_id(kSet);
    for (uint32_t s = 0; s < options_.series; ++s) {
      set->add_sites()->set_op("series." + std::to_string(s));
    }
  }
  AddRows(first, count);
  for (int64_t step = first; step < first + count; ++step) AddFault(step);
  for (int r = 0; r < batch_.sources_size(); ++r) {
    v1::Progress* progress = batch_.add_progress();
    progress->set_source(static_cast<uint32_t>(r));
    progress->set_any_step(true);
    progress->set_complete_through(next_step_ - 1);
    progress->set_newest_step(next_step_ - 1);
    progress->set_finished(AllProduced() && options_.goodbye);
  }
  const auto samples = static_cast<uint64_t>(count) * config_.sources.size() * options_.series;
  samples_ += samples;
  unacknowledged_.push_back({began, samples});
  outbox_.Push(transport::Seal(batch_));
  return true;
}

void SimulatedStream::AddRows(int64_t first, int64_t count) {
  batch_.clear_series();
  v1::SeriesRows* rows = batch_.add_series();
  rows->set_set(kSet);
  const size_t width = options_.series;
  for (int64_t step = first; step < first + count; ++step) {
    for (uint32_t r = 0; r < config_.sources.size(); ++r) {
      rows->add_source(r);
      rows->add_step(step);
      for (size_t done = 0; done < width;) {
        const size_t from = (static_cast<size_t>(step) * 131 + r * 977 + done) % kNoise;
        const size_t n = std::min(width - done, kNoise - from);
        rows->mutable_value()->Add(noise_.begin() + static_cast<std::ptrdiff_t>(from),
                                   noise_.begin() + static_cast<std::ptrdiff_t>(from + n));
        done += n;
      }
    }
  }
}

// Adds a fault of one rank, in another stream each time.
void SimulatedStream::AddFault(int64_t step) {
  if (options_.fault_every <= 0 || step == 0 || step % options_.fault_every != 0) return;
  const uint32_t streams =
      (options_.ranks + options_.ranks_per_stream - 1) / options_.ranks_per_stream;
  if (static_cast<uint32_t>(step / options_.fault_every) % streams != index_) return;
  const v1::Batch leak = test::LeakingStep(config_.sources[0], step, FaultLayer(step));
  batch_.mutable_evidence()->MergeFrom(leak.evidence());
}

void SimulatedStream::OnAcknowledged(uint64_t through) {
  const Clock::time_point now = Clock::now();
  for (; acknowledged_ < through && !unacknowledged_.empty(); ++acknowledged_) {
    const Pushed& p = unacknowledged_.front();
    samples_acknowledged_ += p.samples;
    if (latencies_.size() < kMostLatencies) {
      latencies_.push_back(std::chrono::duration<float>(now - p.at).count());
    }
    unacknowledged_.pop_front();
  }
}

}  // namespace plumbline::bench
