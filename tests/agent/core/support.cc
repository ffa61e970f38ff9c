#include "tests/agent/core/support.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "agent/core/run/record_sink.h"
#include "base/framed_log.h"

namespace plumbline::agent::testing {

RouterCall::RouterCall(int64_t tokens, int64_t experts, int64_t k, uint32_t seed)
    : scores_(static_cast<size_t>(tokens * experts)),
      topk_(static_cast<size_t>(tokens * k)),
      scores_shape_{tokens, experts},
      topk_shape_{tokens, k} {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& s : scores_) s = normal(random);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < k; ++j) topk_[static_cast<size_t>(t * k + j)] = (t + j) % experts;
  }
  scores_tensor_.data = scores_.data();
  scores_tensor_.device = {kDLCPU, 0};
  scores_tensor_.ndim = 2;
  scores_tensor_.dtype = {PLUMBLINE_DL_FLOAT, 32, 1};
  scores_tensor_.shape = scores_shape_;
  topk_tensor_ = scores_tensor_;
  topk_tensor_.data = topk_.data();
  topk_tensor_.dtype = {PLUMBLINE_DL_INT, 64, 1};
  topk_tensor_.shape = topk_shape_;
  routing_.top_k = static_cast<uint32_t>(k);
  routing_.scores = &scores_tensor_;
  routing_.scores_are_logits = 1;
  routing_.topk_indices = &topk_tensor_;
  routing_.mode = "train";
}

TestRun::TestRun(AgentOptions options) {
  auto run = Run::Open(std::move(options));
  if (!run.ok()) {
    ADD_FAILURE() << run.status();
    std::abort();
  }
  run_ = *std::move(run);
}

Site* TestRun::RoutingSite(const std::string& layer) {
  std::unique_ptr<Declared>& d = sites_[layer];
  if (d != nullptr) return d->site;
  d = std::make_unique<Declared>();
  plumbline_agent_site_t site{};
  site.size = sizeof(site);
  site.kind = PLUMBLINE_KIND_ROUTING;
  site.layer = layer.c_str();
  site.op = "routing";
  site.step = std::max<int64_t>(0, run_->state().newest_step.load());
  site.next_due = &d->next_due;
  void* made = nullptr;
  EXPECT_EQ(run_->DeclareSite(site, &made, &error_), PLUMBLINE_OK) << error_.text;
  d->site = static_cast<Site*>(made);
  return d->site;
}

bool TestRun::Due(const std::string& layer, int64_t step) const {
  return static_cast<uint64_t>(step) >= sites_.at(layer)->next_due;
}

plumbline_status_t TestRun::Observe(const std::string& layer, int64_t step, RouterCall& call) {
  return run_->ObserveRouting(RoutingSite(layer), step, call.get(), &error_);
}

plumbline_status_t TestRun::Close(uint32_t timeout_ms) {
  const plumbline_status_t status = run_->Close(timeout_ms, &error_);
  run_.reset();
  return status;
}

namespace {

double CpuShareOfSomeSeconds() {
  timespec before{}, after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(std::chrono::seconds(4));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  return (static_cast<double>(after.tv_sec - before.tv_sec) +
          1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec)) /
         4;
}

}  // namespace

double IdleCpuShare(double enough) {
  double least = CpuShareOfSomeSeconds();
  for (int again = 0; again < 4 && least >= enough; ++again) {
    least = std::min(least, CpuShareOfSomeSeconds());
  }
  return least;
}

AgentOptions RecordOptions(const std::string& dir) {
  AgentOptions options;
  options.run = "test";
  options.record_dir = dir;
  options.budget = 1;  // the tests only make observations
  return options;
}

AgentOptions ServerOptions(const std::string& target) {
  AgentOptions options;
  options.run = "test";
  options.server = target;
  options.budget = 1;
  options.backoff_first_ms = 20;
  options.backoff_last_ms = 100;
  return options;
}

void RowsToEvidence(std::vector<v1::Batch>* batches) {
  std::map<std::pair<uint64_t, uint64_t>, v1::SeriesSet> sets;
  for (const v1::Batch& batch : *batches) {
    for (const v1::SeriesSet& set : batch.series_sets()) sets[{batch.stream_id(), set.id()}] = set;
  }
  for (v1::Batch& batch : *batches) {
    for (const v1::SeriesRows& rows : batch.series()) {
      const v1::SeriesSet& set = sets.at({batch.stream_id(), rows.set()});
      ASSERT_EQ(rows.value_size(), rows.step_size() * set.sites_size());
      for (int i = 0; i < rows.value_size(); ++i) {
        v1::Evidence& e = *batch.add_evidence();
        *e.mutable_site() = set.sites(i % set.sites_size());
        e.set_step(rows.step(i / set.sites_size()));
        e.set_sample_size(1);
        e.mutable_scalar()->set_value(rows.value(i));
      }
    }
    batch.clear_series();
  }
}

std::string FirstRecord(const std::string& dir) { return RecordPath(dir, v1::ROLE_TRAINER, 0, 0); }

std::vector<v1::Batch> ReadRecord(const std::string& path) {
  std::vector<v1::Batch> batches;
  auto reader = FramedLogReader::Open(path);
  if (!reader.ok()) {
    ADD_FAILURE() << path << ": " << reader.status();
    return batches;
  }
  FrameType type{};
  std::string payload;
  uint64_t frames = 0;
  FramedLogReader::Result result;
  while ((result = (*reader)->Next(&type, &payload)) == FramedLogReader::Result::kFrame) {
    if (frames++ == 0) {
      v1::RecordHeader header;
      EXPECT_EQ(type, FrameType::kRecordHeader);
      EXPECT_TRUE(header.ParseFromString(payload));
      EXPECT_EQ(header.schema(), "plumbline.record/1");
      continue;
    }
    EXPECT_EQ(type, FrameType::kBatch);
    EXPECT_TRUE(batches.emplace_back().ParseFromString(payload));
  }
  EXPECT_NE(result, FramedLogReader::Result::kDamaged) << (*reader)->error();
  RowsToEvidence(&batches);
  return batches;
}

void Account::Add(const v1::Batch& batch) {
  for (const v1::Evidence& e : batch.evidence()) {
    ++items;
    samples += e.routing().has_sample();
    ++items_by_site[{e.site().layer(), e.site().op()}];
  }
  for (const v1::Loss& l : batch.losses()) {
    lost_by_cause[l.cause()] += l.count();
    if (l.cause().rfind("sample-", 0) == 0) {
      samples_lost += l.count();
      continue;
    }
    lost += l.count();
    lost_by_site[{l.site().layer(), l.site().op()}] += l.count();
  }
  for (const v1::SiteDeclaration& d : batch.declarations()) {
    declared[{d.site().layer(), d.site().op()}] = d.kind();
  }
  for (const v1::Progress& p : batch.progress()) {
    EXPECT_GE(p.complete_through(), complete_through) << "progress went back";
    complete_through = p.complete_through();
    finished |= p.finished();
  }
}

Account AccountOf(const std::vector<v1::Batch>& batches) {
  Account account;
  for (const v1::Batch& b : batches) account.Add(b);
  return account;
}

}  // namespace plumbline::agent::testing
