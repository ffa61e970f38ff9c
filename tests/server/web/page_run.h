// One agent process of a run for the page, and the shape of its loss.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/support.h"

namespace plumbline::test {

using Channel = std::shared_ptr<grpc::Channel>;

// One agent process for all ranks of a run, which report the same series.
class Run {
 public:
  Run(const Channel& channel, uint64_t stream, std::string name, uint32_t ranks,
      std::vector<v1::Site> sites, uint32_t first_rank = 0, uint32_t world = 0)
      : sites_(std::move(sites)), set_(stream * 1000) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      sources_.push_back(SourceOf(name, first_rank + rank, world == 0 ? ranks : world));
    }
    stream_ = std::make_unique<AgentStream>(channel, stream, sources_);
  }

  // Sends a step; `value` of (rank, column).
  void Step(int64_t step, const std::function<double(uint32_t, size_t)>& value) {
    v1::Batch batch = Empty();
    if (!stated_) {
      v1::SeriesSet& set = *batch.add_series_sets();
      set.set_id(set_);
      for (const v1::Site& site : sites_) *set.add_sites() = site;
      stated_ = true;
    }
    v1::SeriesRows& rows = *batch.add_series();
    rows.set_set(set_);
    for (uint32_t rank = 0; rank < sources_.size(); ++rank) {
      rows.add_source(rank);
      rows.add_step(step);
      for (size_t i = 0; i < sites_.size(); ++i) rows.add_value(value(rank, i));
    }
    Finish(std::move(batch), step, false);
  }
  // Sends many steps of one rank and one series.
  void Steps(int64_t first, int64_t count, const std::function<double(int64_t)>& value) {
    v1::Batch batch = Empty();
    if (!std::exchange(stated_, true)) {
      batch.add_series_sets()->set_id(set_);
      *batch.mutable_series_sets(0)->add_sites() = sites_[0];
    }
    v1::SeriesRows& rows = *batch.add_series();
    rows.set_set(set_);
    rows.add_source(0);
    for (int64_t step = first; step < first + count; ++step) {
      rows.add_step(step);
      rows.add_value(value(step));
    }
    Finish(std::move(batch), first + count - 1, false);
  }
  // Sends a step with only router evidence.
  void Leak(int64_t step, const std::string& layer) {
    for (const v1::Source& source : sources_) {
      v1::Batch batch = LeakingStep(source, step, layer);
      const v1::Evidence evidence = batch.evidence(0);
      v1::Batch whole = Empty();
      *whole.add_evidence() = evidence;
      for (v1::Evidence& one : *whole.mutable_evidence()) one.set_source(Index(source));
      Send(std::move(whole));
    }
  }
  void End(int64_t step) { Finish(Empty(), step, true); }
  void Lose(int64_t first, int64_t last, uint64_t count) {
    v1::Batch batch = Empty();
    v1::Loss& loss = *batch.add_losses();
    loss.set_cause("queue-full");
    loss.set_count(count);
    loss.set_step_first(first);
    loss.set_step_last(last);
    Send(std::move(batch));
  }
  void Beat(uint64_t id, int64_t newest, double still) {
    v1::AgentMessage message;
    v1::Heartbeat& beat = *message.mutable_heartbeat();
    beat.set_stream_id(id);
    beat.set_any_step(true);
    beat.set_newest_step(newest);
    beat.set_oldest_unsent_step(newest + 1);
    beat.set_steps_ended(newest);
    beat.set_still_ns(static_cast<uint64_t>(still * 1e9) + 1);
    stream_->SendRaw(message);
  }
  void Declare() {
    v1::Batch batch = Empty();
    v1::SiteDeclaration& site = *batch.add_declarations();
    site.mutable_site()->set_layer("ddp");
    site.mutable_site()->set_op("all_reduce");
    site.set_kind("reduction");
    Send(std::move(batch));
  }
  std::string name() const { return sources_[0].run(); }
  bool Acknowledged() { return stream_->Acknowledged(sequence_); }

 private:
  uint32_t Index(const v1::Source& source) const { return source.rank() - sources_[0].rank(); }
  v1::Batch Empty() const {
    v1::Batch batch;
    for (const v1::Source& source : sources_) *batch.add_sources() = source;
    return batch;
  }
  void Finish(v1::Batch batch, int64_t step, bool finished) {
    for (uint32_t rank = 0; rank < sources_.size(); ++rank) {
      v1::Progress& progress = AddProgress(&batch, step);
      progress.set_source(rank);
      progress.set_finished(finished);
    }
    Send(std::move(batch));
  }
  void Send(v1::Batch batch) { stream_->Send(std::move(batch), ++sequence_); }

  std::vector<v1::Source> sources_;
  const std::vector<v1::Site> sites_;
  const uint64_t set_;
  bool stated_ = false;
  uint64_t sequence_ = 0;
  std::unique_ptr<AgentStream> stream_;
};

inline v1::Site SiteOf(const std::string& layer, const std::string& op) {
  v1::Site site;
  site.set_layer(layer);
  site.set_op(op);
  return site;
}

// The shape of a loss: falls quickly, then slowly, with correlated noise.
class Curve {
 public:
  explicit Curve(uint32_t seed, double from, double to, double noise)
      : random_(seed), from_(from), to_(to), noise_(noise) {}
  double At(int64_t step, double length) {
    walk_ = 0.7 * walk_ + normal_(random_) * noise_;
    const double x = static_cast<double>(step) / length;
    return to_ + (from_ - to_) * std::exp(-4 * x) * (0.55 + 0.45 / (1 + 9 * x)) + walk_;
  }
  double Noise() { return normal_(random_); }

 private:
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
  const double from_, to_, noise_;
  double walk_ = 0;
};

}  // namespace plumbline::test
