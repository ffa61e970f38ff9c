// Processes of a run that send heartbeats and train, with the test's own clock.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "server/stream/liveness.h"

namespace plumbline::server {

// A run of processes that send a heartbeat each 500 ms, observed every 500 ms.
class LivenessTest : public ::testing::Test {
 protected:
  using milliseconds = std::chrono::milliseconds;
  explicit LivenessTest(Liveness::Nanos hang = std::chrono::seconds(10)) : live_(hang) {}

  struct Rank {
    int64_t step = -1, ended = 0;
    Liveness::Time moved{};
    v1::Span::Kind stage = v1::Span::KIND_UNSPECIFIED;
    bool beats = true;
  };

  void Begin(uint32_t ranks, const std::string& run = "r") {
    run_ = run;
    ranks_.resize(ranks);
    for (uint32_t r = 0; r < ranks; ++r) Join(r);
  }
  void Join(uint32_t rank, uint32_t attempt = 0, uint64_t connection = 1) {
    v1::Hello hello;
    hello.set_stream_id(100 * attempt + rank + 1);
    v1::Source& source = *hello.add_sources();
    source.set_run(run_);
    source.set_rank(rank);
    source.set_attempt(attempt);
    source.set_role(role_);
    source.set_host(host_);
    source.set_pid(4711 + rank);
    hello.mutable_state()->set_steps_ended(rank < ranks_.size() ? ranks_[rank].ended : 0);
    live_.Joined(hello, connection, now_);
  }
  void Leave(uint32_t rank) { live_.Left(rank + 1, 1, now_); }

  // Each rank ends its step and begins the next, `steps` times, one per tick; those in `stuck` do
  // not.
  void Train(int steps, std::set<uint32_t> stuck = {}, milliseconds each = milliseconds(500)) {
    for (int i = 0; i < steps; ++i) {
      for (uint32_t r = 0; r < ranks_.size(); ++r) {
        if (stuck.count(r) != 0) continue;
        Rank& rank = ranks_[r];
        if (rank.step >= 0) ++rank.ended;
        ++rank.step;
        rank.moved = now_;
        v1::Batch batch;
        v1::Progress& progress = *batch.add_progress();
        progress.set_newest_step(rank.step);
        progress.set_complete_through(rank.step - 1);
        progress.set_any_step(rank.ended > 0);
        live_.Heard(r + 1, batch, now_);
      }
      Pass(each);
    }
  }

  // These ranks end their present step, and stay there.
  void EndStep(std::initializer_list<uint32_t> ranks) {
    for (const uint32_t r : ranks) {
      v1::Batch batch;
      v1::Progress& progress = *batch.add_progress();
      progress.set_newest_step(ranks_[r].step);
      progress.set_complete_through(ranks_[r].step);
      progress.set_any_step(true);
      live_.Heard(r + 1, batch, now_);
      ranks_[r].stage = v1::Span::KIND_OTHER;
    }
  }

  // Advances the clock; ranks with heartbeats report their state. Keeps the reports.
  void Pass(milliseconds time) {
    for (milliseconds left = time; left > milliseconds(0); left -= milliseconds(250)) {
      now_ += milliseconds(250);
      for (uint32_t r = 0; r < ranks_.size(); ++r) {
        const Rank& rank = ranks_[r];
        if (!rank.beats) continue;
        v1::Heartbeat beat;
        beat.set_any_step(rank.step >= 0);
        beat.set_newest_step(rank.step);
        beat.set_still_ns(static_cast<uint64_t>((now_ - rank.moved).count()));
        beat.set_open_stage(rank.stage);
        beat.set_steps_ended(rank.ended);
        live_.Heard(r + 1, beat, now_);
      }
      for (v1::RanksHung& hung : live_.Look(now_, &stopped_)) reported_.push_back(std::move(hung));
    }
  }

  template <typename List>
  static std::vector<uint32_t> Of(const List& list) {
    return {list.begin(), list.end()};
  }
  uint64_t State(const std::string& state) { return live_.States(run_, now_)[state]; }

  Liveness live_;
  Liveness::Time now_{std::chrono::hours(1)};
  std::string run_;
  std::vector<Rank> ranks_;
  std::vector<v1::RanksHung> reported_;
  std::vector<v1::StepsStopped> stopped_;
  v1::Role role_ = v1::ROLE_TRAINER;
  std::string host_ = "node0";
};

}  // namespace plumbline::server
