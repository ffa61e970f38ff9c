#include "tests/rules/support/simulated_job.h"

#include <algorithm>
#include <map>

#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {
namespace {

constexpr int64_t kMs = 1'000'000, kUs = 1'000;
constexpr uint32_t kHostThread = 0, kStreamOfWork = 7, kStreamOfCollectives = 20;

enum Names : uint32_t { kGemm, kAdd, kFirst, kAllReduce, kGather, kCopyName, kStall, kLoader };

int64_t Ns(double ms) { return static_cast<int64_t>(ms * static_cast<double>(kMs)); }

struct StallKind {
  const char* name;
  uint8_t classes;
};

StallKind KindOf(const std::string& stall) {
  static const std::map<std::string, StallKind> kKinds = {
      {"loader",
       {"enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", timeline::kDataLoading}},
      {"gc", {"<built-in function collect>", timeline::kGarbageCollection}},
      {"checkpoint", {"train.py(88): save_checkpoint", timeline::kCheckpoint}},
      {"compile", {"torch/_inductor/compile_fx.py(9): compile_fx", timeline::kCompilation}},
      {"sync", {"cudaStreamSynchronize", timeline::kSynchronisation}},
      {"silent", {"", 0}},
      {"", {"", 0}}};
  return kKinds.at(stall);
}

// One rank's trace under construction.
class RankTrace {
 public:
  RankTrace(const JobSpec& spec, int rank, Draw* draw)
      : spec_(spec), rank_(rank), draw_(*draw), speed_(1 + spec.spread * draw->Normal()) {
    const StallKind stall = KindOf(spec.stall);
    out_.names = {"sm90_gemm_bf16",
                  "void at::native::vectorized_elementwise_kernel<4>",
                  "void embedding_kernel",
                  "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
                  "ncclDevKernel_AllGather_RING_LL",
                  "Memcpy HtoD (Pinned -> Device)",
                  stall.name,
                  KindOf("loader").name};
    if (spec.stages > 1) out_.stage = rank % spec.stages;
    if (spec.collective_mib > 0) {
      out_.collectives.push_back({.op = spec.collective,
                                  .ranks = static_cast<uint32_t>(spec.ranks),
                                  .first = 0,
                                  .stride = 1,
                                  .bytes = static_cast<uint64_t>(spec.collective_mib * (1 << 20))});
    }
    if (rank == spec.slow_rank || (spec.slow_stage >= 0 && rank % spec.stages == spec.slow_stage))
      speed_ *= spec.slow;
  }

  // Computes until the rank arrives at the collective. `now` is the end of the previous step.
  void Compute(int step, int64_t now) {
    begun_ = now;
    at_ = now + 20 * kUs;
    ahead_ = 2 * kMs;
    const bool stalls = !spec_.stall.empty() && step % spec_.stall_every == 0 &&
                        (spec_.stall_rank < 0 || spec_.stall_rank == rank_);
    if (stalls) Stall();
    // The first micro-batch passes through the earlier stages first.
    if (spec_.micro_batches > 0)
      at_ += Ns(spec_.compute_ms * (rank_ % spec_.stages) / spec_.micro_batches);
    // A loader that has its batch ready while the GPU still computes.
    AddSpan(at_ + 5 * kMs, at_ + 6 * kMs, kLoader, timeline::kDataLoading);
    if (rank_ == spec_.late_rank) {
      at_ += Ns(spec_.late_ms);
      ahead_ = 5 * kUs;
    }
    AddWork(at_, at_ + 50 * kUs, kCopyName, kStreamOfWork, timeline::GpuKind::kCopy);
    at_ += 50 * kUs;
    const double each =
        spec_.compute_ms * speed_ * (1 + spec_.jitter * (2 * draw_.Uniform() - 1)) / spec_.kernels;
    for (int k = 0; k < spec_.kernels; ++k) Kernel(k, each);
  }

  // In a pipeline the last micro-batch continues through the later stages.
  int64_t arrived() const {
    if (spec_.micro_batches == 0) return at_;
    const int after = spec_.stages - 1 - rank_ % spec_.stages;
    return at_ + Ns(spec_.compute_ms * after / spec_.micro_batches);
  }

  void Collective(int step, int64_t end) {
    if (!spec_.alone) {
      AddWork(at_, end, kAllReduce, kStreamOfCollectives, timeline::GpuKind::kKernel, true);
      if (!out_.collectives.empty()) out_.gpu.back().collective = 0;
    }
    if (spec_.marks) out_.steps.push_back({10 + step, begun_, end});
    at_ = end;
  }

  timeline::Columns Take() {
    if (!spec_.gpu) out_.gpu.clear();
    if (!spec_.launches) out_.launches.clear();
    return std::move(out_);
  }

 private:
  void Stall() {
    const int64_t until = at_ + Ns(spec_.stall_ms);
    const StallKind stall = KindOf(spec_.stall);
    if (spec_.stall == "sync") {
      AddSpan(at_ - 3 * kMs, at_ + 10 * kUs, kStall, stall.classes);
    } else if (stall.classes != 0) {
      AddSpan(at_ - kMs, until - 10 * kUs, kStall, stall.classes);
    }
    at_ = until;
    ahead_ = 5 * kUs;
  }

  void Kernel(int k, double ms) {
    const uint32_t name = k == 0 ? kFirst : k % 2 == 0 ? kGemm : kAdd;
    if (draw_.Uniform() < spec_.stray_gaps / spec_.kernels)
      at_ += Ns(1 + (spec_.stray_ms - 1) * draw_.Uniform());
    if (spec_.launch_us > 0) {
      at_ += static_cast<int64_t>(spec_.launch_us * kUs);
      ahead_ = kUs;
    }
    const int64_t end = at_ + Ns(ms * (1 + 0.02 * draw_.Normal()));
    AddWork(at_, end, name, kStreamOfWork, timeline::GpuKind::kKernel);
    if (spec_.hidden && !spec_.alone && k % 8 == 4)
      AddWork(at_ + (end - at_) / 4, end - (end - at_) / 4, kGather, kStreamOfCollectives,
              timeline::GpuKind::kKernel, true);
    at_ = end;
  }

  void AddWork(int64_t start, int64_t end, uint32_t name, uint32_t stream, timeline::GpuKind kind,
               bool communicates = false) {
    timeline::GpuWork work;
    work.start = start;
    work.end = end;
    work.name = name;
    work.stream = stream;
    work.kind = kind;
    work.communicates = communicates;
    work.correlation = ++correlation_;
    out_.gpu.push_back(work);
    out_.launches.push_back({start - ahead_, static_cast<int32_t>(std::min(ahead_, 4 * kUs)),
                             correlation_, kHostThread, kind == timeline::GpuKind::kKernel});
    ++out_.host_events;
  }

  void AddSpan(int64_t start, int64_t end, uint32_t name, uint8_t classes) {
    out_.spans.push_back({start, end, kHostThread, name, classes});
    ++out_.host_events;
  }

  const JobSpec& spec_;
  int rank_;
  Draw& draw_;
  double speed_;
  timeline::Columns out_;
  uint32_t correlation_ = 0;
  int64_t begun_ = 0, at_ = 0;
  int64_t ahead_ = 2 * kMs;  // time between a kernel's launch and its start
};

void Poison(const std::string& poison, v1::Timeline* timeline) {
  if (poison == "huge") {
    for (auto& gap : *timeline->mutable_gaps()) gap.set_duration_ns(UINT64_MAX);
    for (auto& step : *timeline->mutable_steps()) step.set_duration_ns(UINT64_MAX - 1);
    timeline->set_kernel_ns(UINT64_MAX);
  } else if (poison == "parts") {
    timeline->set_busy_ns(2 * timeline->span_ns());
    for (auto& step : *timeline->mutable_steps()) step.set_exposed_ns(2 * step.duration_ns());
  }
}

}  // namespace

void Set(JobSpec& s, const std::string& key, const std::string& value) {
  int seed = static_cast<int>(s.seed);
  SpecFields fields;
  fields.whole = {{"ranks", &s.ranks},
                  {"steps", &s.steps},
                  {"kernels", &s.kernels},
                  {"stall_every", &s.stall_every},
                  {"stall_rank", &s.stall_rank},
                  {"slow_rank", &s.slow_rank},
                  {"late_rank", &s.late_rank},
                  {"stages", &s.stages},
                  {"slow_stage", &s.slow_stage},
                  {"micro_batches", &s.micro_batches},
                  {"told_ranks", &s.reported_ranks},
                  {"seed", &seed}};
  fields.number = {{"compute_ms", &s.compute_ms},
                   {"transfer_ms", &s.transfer_ms},
                   {"spread", &s.spread},
                   {"jitter", &s.jitter},
                   {"stray_gaps", &s.stray_gaps},
                   {"stray_ms", &s.stray_ms},
                   {"stall_ms", &s.stall_ms},
                   {"slow", &s.slow},
                   {"late_ms", &s.late_ms},
                   {"launch_us", &s.launch_us},
                   {"collective_mib", &s.collective_mib}};
  fields.flag = {{"hidden", &s.hidden},
                 {"alone", &s.alone},
                 {"marks", &s.marks},
                 {"launches", &s.launches},
                 {"gpu", &s.gpu}};
  fields.text = {{"stall", &s.stall}, {"poison", &s.poison}, {"driver", &s.driver}};
  SetField(fields, key, value);
  s.seed = static_cast<uint64_t>(seed);
}

std::vector<timeline::Columns> SimulatedJob(const JobSpec& spec) {
  Draw draw(spec.seed);
  std::vector<RankTrace> ranks;
  for (int rank = 0; rank < spec.ranks; ++rank) ranks.emplace_back(spec, rank, &draw);
  int64_t now = 1'712'345'678'000'000'000;
  for (int step = 0; step < spec.steps; ++step) {
    int64_t last = 0;
    for (RankTrace& rank : ranks) {
      rank.Compute(step, now);
      last = std::max(last, rank.arrived());
    }
    now = last + Ns(spec.transfer_ms);
    for (RankTrace& rank : ranks) rank.Collective(step, now);
  }
  std::vector<timeline::Columns> columns;
  for (RankTrace& rank : ranks) columns.push_back(rank.Take());
  return columns;
}

// Adds the report of a rank's agent, at the step of its timeline.
void AddDriver(const JobSpec& spec, int rank, v1::Batch* batch) {
  if (spec.driver.empty()) return;
  const bool states = rank == spec.slow_rank || spec.driver == "heat everywhere";
  const bool heat = states && spec.driver.starts_with("heat");
  const std::map<std::string_view, double> values = {
      {timeline::kClocksHeldSeries, heat ? 0.9 : 0},
      {timeline::kClockReasonsSeries, heat ? 0x40 : 0},
      {timeline::kMemoryErrorsSeries, states && spec.driver == "ecc" ? 3 : 0},
      {timeline::kXidSeries, states && spec.driver == "xid" ? 79 : 0}};
  for (const auto& [series, value] : values) {
    v1::Evidence& evidence = *batch->add_evidence();
    evidence.set_source(static_cast<uint32_t>(rank));
    evidence.mutable_site()->set_op(std::string(series));
    evidence.set_step(10);
    evidence.mutable_scalar()->set_value(value);
  }
}

v1::Batch JobRun(const JobSpec& spec) {
  v1::Batch batch;
  std::vector<timeline::Columns> columns = SimulatedJob(spec);
  const int reported = spec.reported_ranks > 0 ? spec.reported_ranks : spec.ranks;
  for (int rank = 0; rank < reported; ++rank) {
    AddTrainer(rank, spec.ranks, &batch);
    v1::Evidence& evidence = *batch.add_evidence();
    evidence.set_source(static_cast<uint32_t>(rank));
    evidence.mutable_site()->set_op("timeline");
    evidence.set_step(10);
    *evidence.mutable_timeline() = timeline::Reduce(&columns[static_cast<size_t>(rank)]);
    Poison(spec.poison, evidence.mutable_timeline());
    AddDriver(spec, rank, &batch);
    for (const auto& times : timeline::CollectivesIn(columns[static_cast<size_t>(rank)])) {
      v1::Evidence& moved = *batch.add_evidence();
      moved.set_source(static_cast<uint32_t>(rank));
      moved.set_step(10);
      timeline::PutCollective(times, &moved);
      if (spec.poison == "moved") moved.mutable_span()->set_duration_ns(0);
    }
  }
  return batch;
}

}  // namespace plumbline::rules::testing
