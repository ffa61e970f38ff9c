#include "tests/rules/performance/simulated_loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {
namespace {

class SimulatedLoops {
 public:
  explicit SimulatedLoops(const LoopSpec& spec) : s_(spec), random_(spec.seed) {
    const auto ranks = static_cast<size_t>(s_.ranks);
    steps_.resize(ranks);
    spans_.resize(ranks);
    for (int r = 0; r < s_.ranks; ++r) pace_.push_back(1 + s_.spread * normal_(random_));
  }

  v1::Batch Run() {
    for (int step = s_.first_step; step < s_.steps; ++step) Step(step);
    v1::Batch batch;
    for (int r = 0; r < s_.ranks; ++r) {
      AddTrainer(r, s_.ranks, &batch);
      batch.mutable_sources(r)->set_attempt(s_.attempt);
      v1::Evidence& evidence = *batch.add_evidence();
      evidence.set_source(static_cast<uint32_t>(r));
      evidence.mutable_site()->set_layer(std::string(s_.layer));
      evidence.mutable_site()->set_op("timeline");
      evidence.set_step(s_.steps - 1);
      timeline::Columns columns =
          timeline::ColumnsOfLoop(steps_[static_cast<size_t>(r)], spans_[static_cast<size_t>(r)]);
      *evidence.mutable_timeline() = timeline::Reduce(&columns);
    }
    return batch;
  }

 private:
  using Kind = v1::Span::Kind;
  void Span(size_t rank, Kind kind, const char* name, double ms) {
    const int64_t start = at_[rank];
    at_[rank] += static_cast<int64_t>(1e6 * std::max(ms, 0.001));
    spans_[rank].push_back({start, at_[rank], kind, name});
  }

  void Step(int step) {
    const auto ranks = static_cast<size_t>(s_.ranks);
    at_.resize(ranks, 1'000'000'000);
    std::vector<int64_t> begin = at_, arrived(ranks);
    const auto due = [&](int every) { return every > 0 && step % every == every - 1; };
    for (size_t r = 0; r < ranks; ++r) {
      Span(r, v1::Span::KIND_DATA, "data", s_.data_ms * (1 + 0.2 * normal_(random_)));
      double work = s_.work_ms * pace_[r] * (1 + s_.spread * normal_(random_));
      work *= 1 + s_.uneven * share_(random_);
      if (s_.lengths > 0) work *= std::exp(s_.lengths * normal_(random_));
      if (static_cast<int>(r) == s_.slow_rank) work += s_.excess_ms;
      at_[r] += static_cast<int64_t>(1e6 * std::max(work, 1.0));
      if (static_cast<int>(r) == s_.late_rank) Span(r, v1::Span::KIND_DATA, "data", s_.excess_ms);
      if (due(s_.collect_every)) Span(r, v1::Span::KIND_OTHER, "garbage collection", s_.collect_ms);
      arrived[r] = at_[r];
    }
    const int64_t end = *std::max_element(arrived.begin(), arrived.end()) +
                        static_cast<int64_t>(1e6 * s_.reduce_ms);
    for (size_t r = 0; r < ranks; ++r) {
      at_[r] = end;
      if (s_.collectives)
        spans_[r].push_back({arrived[r], end, v1::Span::KIND_COLLECTIVE, "gradients"});
      at_[r] += 2'000'000;  // the update
      if (due(s_.evaluate_every))
        Span(r, v1::Span::KIND_EVALUATION, "evaluation",
             s_.evaluate_ms * (1 + 0.05 * share_(random_)));
      if (due(s_.checkpoint_every) && (r == 0 || !s_.first_saves))
        Span(r, v1::Span::KIND_CHECKPOINT, "checkpoint", s_.checkpoint_ms);
      steps_[r].push_back({step, begin[r], at_[r]});
    }
  }

  LoopSpec s_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> share_{0, 1};
  std::vector<double> pace_;
  std::vector<int64_t> at_;
  std::vector<std::vector<timeline::LoopStep>> steps_;
  std::vector<std::vector<timeline::LoopSpan>> spans_;
};

}  // namespace

v1::Batch LoopRun(const LoopSpec& spec) { return SimulatedLoops(spec).Run(); }

Judged JudgeAll(const std::vector<LoopSpec>& specs) {
  Judged judged;
  EngineConfig config;
  config.rules = {"performance/*"};
  auto engine = Engine::Create(config, [&](const v1::Verdict& verdict) {
    const std::string& reason = verdict.reason();
    if (verdict.kind() == v1::Verdict::KIND_FINDING) {
      judged.findings.push_back(verdict.finding());
      judged.causes[verdict.rule()].insert(verdict.finding().cause().id());
    } else {
      judged.verdicts[verdict.rule()].insert(
          verdict.kind() == v1::Verdict::KIND_PASS ? "pass" : reason.substr(0, reason.find(':')));
    }
  });
  EXPECT_TRUE(engine.ok()) << engine.status();
  for (const LoopSpec& spec : specs) EXPECT_TRUE((*engine)->Add(LoopRun(spec)).ok());
  (*engine)->Finish();
  return judged;
}

}  // namespace plumbline::rules::testing
