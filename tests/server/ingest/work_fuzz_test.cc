// The cost of a message must be proportional to its bytes. Hostile batches that pass the checks, of
// every shape that the wire allows, pass through all code of ingest and the judge. The time and
// memory per byte are compared with those of ordinary batches, and with a batch of a quarter of the
// size. No batch may cost more than a fixed multiple of an ordinary one, and no cost may grow
// faster than the bytes. PLUMB_LONG=1: more of them, and larger.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <random>

#include "audit/live/doctor_batch.h"
#include "rules/engine/engine.h"
#include "server/ingest/name_table.h"
#include "server/ingest/pacer.h"
#include "server/stream/batch_checks.h"
#include "server/stream/claimed_ranks.h"
#include "server/stream/liveness.h"
#include "server/stream/run_table.h"
#include "server/stream/series_sets.h"
#include "tests/server/ingest/message_fuzz.h"
#include "tests/support/batches.h"

namespace plumbline::server {
namespace {

using Random = std::mt19937;

double CpuSeconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Returns the heap bytes of the whole process; 0 if the allocator does not report them
// (sanitizers).
size_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

struct Cost {
  double seconds = 0;
  double heap = 0;  // bytes that stay in use
  double bytes = 0;
  bool refused = false;
  std::string why;
};

// A server's memory for one stream, without sockets, disk and threads.
class Parts {
 public:
  Parts() {
    rules::EngineConfig config;
    config.hosted = true;
    config.run_bytes = 256u << 20;
    engine_ = *rules::Engine::Create(config, [](const v1::Verdict&) {});
    engine_->SetOnSeries([](const rules::StepSeries&) {});
  }

  void Hello(const v1::Hello& hello) {
    pacer_.Join(1, this, hello, &free_);
    live_.Joined(hello, 1, {});
  }

  Cost Take(const v1::Batch& made) {
    v1::Batch numbered = made;
    numbered.set_stream_id(1);
    const std::string wire = numbered.SerializeAsString();
    numbered.Clear();
    Cost cost;
    cost.bytes = static_cast<double>(wire.size());
    const size_t heap = HeapBytes();
    const double start = CpuSeconds();
    const absl::Status status = TakeWire(wire);
    cost.seconds = CpuSeconds() - start;
    cost.heap = static_cast<double>(HeapBytes()) - static_cast<double>(heap);
    cost.refused = !status.ok();
    cost.why = std::string(status.message());
    return cost;
  }

  // Does what the timer does ten times a second, and what happens at the end of the runs.
  Cost Look() {
    Cost cost;
    const double start = CpuSeconds();
    for (const std::string& run : engine_->Runs()) engine_->Lagging(run);
    (void)runs_.TakeGone(RunTable::Time() + std::chrono::seconds(1));
    (void)live_.Look({});
    cost.seconds = CpuSeconds() - start;
    return cost;
  }
  Cost End() {
    Cost cost;
    const double start = CpuSeconds();
    for (const std::string& run : engine_->Runs()) engine_->FinishRun(run);
    cost.seconds = CpuSeconds() - start;
    return cost;
  }

 private:
  absl::Status TakeWire(const std::string& wire) {
    auto batch = std::make_shared<v1::Batch>();
    if (!batch->ParseFromString(wire)) return absl::InvalidArgumentError("no batch");
    if (auto s = CheckReceived(*batch, {}); !s.ok()) return s;
    if (auto s = names_.Add(*batch); !s.ok()) return s;
    for (const v1::Source& source : batch->sources()) {
      if (!claimed_.Has(source)) claimed_.Add(source);
    }
    live_.Heard(1, *batch, {});
    pacer_.Hear(1, *batch, 0, nullptr, &free_);
    if (auto s = sets_.CheckRows(*batch); !s.ok()) return s;
    std::vector<SetRecord> fresh;
    if (auto s = sets_.Add(batch->series_sets(), 4096, &fresh); !s.ok()) return s;
    runs_.Account(1, *batch, false, {}, 0);
    if (auto s = engine_->Add(batch); !s.ok()) return s;
    for (const std::string& run : runs_.RunsOf(*batch)) (void)engine_->closed_step(run);
    return absl::OkStatus();
  }

  NameTable names_{100, 100'000};
  ClaimedRanks claimed_;
  Liveness live_;
  Pacer pacer_{{}};
  SeriesSets sets_;
  RunTable runs_{std::chrono::seconds(30)};
  std::unique_ptr<rules::Engine> engine_;
  std::vector<Pacer::Resume> free_;
};

// ---- kinds of batches, each of about the given number of bytes, sent one after the other
// ---------

struct Kind {
  const char* name;
  v1::Batch (*make)(Random& random, int bytes, int64_t number);
};

v1::Site Named(const std::string& op) {
  v1::Site site;
  site.set_layer("layers.7");
  site.set_op(op);
  return site;
}

void AddSources(v1::Batch* batch, int count, uint32_t world, uint32_t stride = 1) {
  for (int i = 0; i < count; ++i)
    *batch->add_sources() = test::SourceOf("run", static_cast<uint32_t>(i) * stride, world);
}

void AddRow(v1::SeriesRows* rows, int source, int64_t step, int columns, double value) {
  rows->add_source(static_cast<uint32_t>(source));
  rows->add_step(step);
  for (int i = 0; i < columns; ++i) rows->add_value(value + i);
}

v1::SeriesRows& AddSet(v1::Batch* batch, uint64_t id, int columns, bool declare,
                       const std::string& prefix = "s") {
  if (declare) {
    v1::SeriesSet& set = *batch->add_series_sets();
    set.set_id(id);
    for (int i = 0; i < columns; ++i) set.add_sites()->set_op(prefix + std::to_string(i));
  }
  v1::SeriesRows& rows = *batch->add_series();
  rows.set_set(id);
  return rows;
}

v1::Progress& AddProgressOf(v1::Batch* batch, int source, int64_t step) {
  v1::Progress& progress = test::AddProgress(batch, step);
  progress.set_source(static_cast<uint32_t>(source));
  return progress;
}

// Ordinary batches: scalars in rows, tensors, routers with their samples.
v1::Batch OrdinaryScalars(Random&, int bytes, int64_t number) {
  v1::Batch batch;
  AddSources(&batch, 1, 1);
  v1::SeriesRows& rows = AddSet(&batch, 1, 50, number == 0);
  const int count = std::max(1, bytes / 420);
  for (int i = 0; i < count; ++i) AddRow(&rows, 0, number * count + i, 50, i);
  AddProgressOf(&batch, 0, number * count + count - 1);
  return batch;
}

v1::Batch OrdinaryTensors(Random&, int bytes, int64_t number) {
  v1::Batch batch;
  AddSources(&batch, 1, 1);
  for (int i = 0; i < std::max(1, bytes / 120); ++i) {
    v1::Evidence& e = *batch.add_evidence();
    *e.mutable_site() = Named("t" + std::to_string(i % 100));
    e.set_step(number);
    e.set_call(static_cast<uint32_t>(i / 100));
    e.set_sample_size(4096);
    v1::TensorSummary& summary = *e.mutable_tensor()->mutable_summary();
    summary.set_count(4096);
    summary.set_min(-1);
    summary.set_max(1);
    summary.set_amax(1);
    summary.set_sum(0.1 * i);
    summary.set_sum_squares(400);
    summary.set_l1(1000);
  }
  AddProgressOf(&batch, 0, number);
  return batch;
}

v1::Batch OrdinaryRouters(Random&, int bytes, int64_t number) {
  v1::Batch batch = audit::DoctorBatch(1);
  *batch.mutable_sources(0) = test::SourceOf("run");
  const v1::Evidence first = batch.evidence(0);
  batch.clear_evidence();
  batch.clear_progress();
  const int count = std::max(1, bytes / static_cast<int>(first.ByteSizeLong()));
  for (int i = 0; i < count; ++i) {
    v1::Evidence& e = *batch.add_evidence();
    e = first;
    e.mutable_site()->set_layer("layers." + std::to_string(i % 32));
    e.set_call(static_cast<uint32_t>(i / 32));
    e.set_step(number);
  }
  AddProgressOf(&batch, 0, number);
  return batch;
}

// One row per source, of few columns.
v1::Batch ManySources(Random&, int bytes, int64_t number) {
  v1::Batch batch;
  const int count = std::clamp(bytes / 40, 1, 4096);
  AddSources(&batch, count, 4096);
  v1::SeriesRows& rows = AddSet(&batch, 1, 1, number == 0);
  for (int i = 0; i < count; ++i) AddRow(&rows, i, number, 1, i);
  for (int i = 0; i < count; ++i) AddProgressOf(&batch, i, number);
  return batch;
}

// As many columns as allowed; rows without values.
v1::Batch ManyColumns(Random&, int bytes, int64_t number) {
  v1::Batch batch;
  AddSources(&batch, 64, 64);
  const int columns = std::clamp(bytes / 10, 1, 1 << 16);
  v1::SeriesRows& rows = AddSet(&batch, static_cast<uint64_t>(columns), columns, number == 0);
  AddRow(&rows, static_cast<int>(number % 64), number, columns, 1);
  rows.set_absent(std::string(static_cast<size_t>(columns + 7) / 8, '\xff'));
  for (int i = 0; i < 64; ++i) AddProgressOf(&batch, i, number);
  return batch;
}

v1::Batch ManySets(Random&, int bytes, int64_t number) {
  v1::Batch batch;
  AddSources(&batch, 8, 8);
  const int count = std::clamp(bytes / 40, 1, 4000);
  for (int i = 0; i < count; ++i) {
    v1::SeriesRows& rows =
        AddSet(&batch, static_cast<uint64_t>(i + 1), 1, number == 0, "set" + std::to_string(i));
    AddRow(&rows, i % 8, number, 1, i);
  }
  for (int i = 0; i < 8; ++i) AddProgressOf(&batch, i, number);
  return batch;
}

// Worlds whose ranks never come, and a step in each report.
v1::Batch ClaimedWorlds(Random& random, int bytes, int64_t number) {
  v1::Batch batch;
  const int count = std::clamp(bytes / 200, 1, 4096);
  AddSources(&batch, count, 1u << 17, 31);
  for (int i = 0; i < count; ++i) {
    v1::Evidence& e = *batch.add_evidence();
    e.set_source(static_cast<uint32_t>(i));
    *e.mutable_site() = Named("claimed");
    e.set_step(number * 4 + static_cast<int64_t>(random() % 4));
    e.mutable_tensor()->mutable_summary()->set_count(1);
    AddProgressOf(&batch, i, number * 4 + 3);
  }
  return batch;
}

// Every item has a different step, far from the others.
v1::Batch SparseSteps(Random& random, int bytes, int64_t number) {
  v1::Batch batch;
  AddSources(&batch, 2, 2);
  for (int i = 0; i < std::max(1, bytes / 40); ++i) {
    v1::Evidence& e = *batch.add_evidence();
    *e.mutable_site() = Named("sparse");
    e.set_step(static_cast<int64_t>(random()) << 20);
    e.mutable_scalar()->set_value(1);
  }
  AddProgressOf(&batch, 0, number);
  return batch;
}

// Thousands of steps that all close at the same time.
v1::Batch StepsThatClose(Random&, int bytes, int64_t number) {
  v1::Batch batch;
  AddSources(&batch, 1, 1);
  const int count = std::max(1, bytes / 40);
  for (int i = 0; i < count; ++i) {
    v1::Evidence& e = *batch.add_evidence();
    *e.mutable_site() = Named("loss");
    e.set_step(number * count + i);
    e.mutable_scalar()->set_value(i);
  }
  AddProgressOf(&batch, 0, number * count + count - 1);
  return batch;
}

// As many roles as allowed.
v1::Batch ManyRoles(Random&, int bytes, int64_t number) {
  v1::Batch batch;
  const int count = std::clamp(bytes / 80, 1, 4096);
  for (int i = 0; i < count; ++i) {
    v1::Source& source = *batch.add_sources();
    source = test::SourceOf("run", static_cast<uint32_t>(i), 4096);
    source.set_role(static_cast<v1::Role>(i % 64));
    v1::Evidence& e = *batch.add_evidence();
    e.set_source(static_cast<uint32_t>(i));
    *e.mutable_site() = Named("role");
    e.set_step(number);
    e.mutable_scalar()->set_value(1);
    AddProgressOf(&batch, i, number);
  }
  return batch;
}

v1::Batch EverNewAttempts(Random&, int bytes, int64_t number) {
  v1::Batch batch;
  const int count = std::clamp(bytes / 80, 1, 4096);
  for (int i = 0; i < count; ++i) {
    v1::Source& source = *batch.add_sources();
    source = test::SourceOf("run", static_cast<uint32_t>(i), 4096);
    source.set_attempt(static_cast<uint32_t>(number * 4096 + i));
    v1::Evidence& e = *batch.add_evidence();
    e.set_source(static_cast<uint32_t>(i));
    *e.mutable_site() = Named("attempt");
    e.set_step(number);
    e.mutable_scalar()->set_value(1);
    AddProgressOf(&batch, i, number);
  }
  return batch;
}

v1::Batch LongNames(Random&, int bytes, int64_t number) {
  v1::Batch batch;
  *batch.add_sources() = test::SourceOf(std::string(512, 'r'), 0, 1);
  for (int i = 0; i < std::max(1, bytes / 1040); ++i) {
    v1::Evidence& e = *batch.add_evidence();
    e.mutable_site()->set_layer(std::string(500, 'l') + std::to_string(i));
    e.mutable_site()->set_op(std::string(512, 'o'));
    e.set_step(number);
    e.mutable_tensor()->mutable_summary()->set_count(1);
  }
  AddProgressOf(&batch, 0, number);
  return batch;
}

v1::Batch Declarations(Random&, int bytes, int64_t number) {
  v1::Batch batch;
  const int sources = std::clamp(bytes / 100, 1, 4096);
  AddSources(&batch, sources, 4096);
  for (int i = 0; i < std::max(1, bytes / 60); ++i) {
    v1::SiteDeclaration& d = *batch.add_declarations();
    d.set_source(static_cast<uint32_t>(i % sources));
    *d.mutable_site() = Named("d" + std::to_string(i % 5000));
    d.set_kind("tensor");
    d.set_step(number);
  }
  AddProgressOf(&batch, 0, number);
  return batch;
}

v1::Batch Losses(Random&, int bytes, int64_t number) {
  v1::Batch batch;
  const int sources = std::clamp(bytes / 100, 1, 4096);
  AddSources(&batch, sources, 4096);
  for (int i = 0; i < std::max(1, bytes / 60); ++i) {
    v1::Loss& loss = *batch.add_losses();
    loss.set_source(static_cast<uint32_t>(i % sources));
    loss.set_cause("cause" + std::to_string(i % 2000));
    *loss.mutable_site() = Named("x" + std::to_string(i % 40));
    loss.set_count(1);
    loss.set_step_first(number);
    loss.set_step_last(number);
  }
  AddProgressOf(&batch, 0, number);
  return batch;
}

// Many progress reports of one rank.
v1::Batch ManyWords(Random& random, int bytes, int64_t number) {
  v1::Batch batch;
  const int sources = std::clamp(bytes / 500, 1, 4096);
  AddSources(&batch, sources, 4096);
  for (int i = 0; i < sources * 60; ++i)
    AddProgressOf(&batch, static_cast<int>(random() % static_cast<unsigned>(sources)),
                  number * 100 + i / 100);
  return batch;
}

// One rank closes steps that others have not sent, so all evidence of the others is late, one step
// at a time.
v1::Batch Late(Random&, int bytes, int64_t number) {
  v1::Batch batch;
  const int sources = std::clamp(bytes / 200, 2, 4096);
  AddSources(&batch, sources, static_cast<uint32_t>(sources));
  for (int i = 0; i < sources; ++i) {
    v1::Evidence& e = *batch.add_evidence();
    e.set_source(static_cast<uint32_t>(i));
    *e.mutable_site() = Named("late");
    e.set_step(number == 0 ? 1000 : number);
    e.mutable_scalar()->set_value(1);
    if (number == 0) AddProgressOf(&batch, i, 1000);
  }
  return batch;
}

v1::Batch SeveralRuns(Random&, int bytes, int64_t number) {
  v1::Batch batch;
  for (int i = 0; i < std::clamp(bytes / 100, 8, 4096); ++i) {
    *batch.add_sources() =
        test::SourceOf("run" + std::to_string(i % 8), static_cast<uint32_t>(i), 4096);
    v1::Evidence& e = *batch.add_evidence();
    e.set_source(static_cast<uint32_t>(i));
    *e.mutable_site() = Named("shared");
    e.set_step(number);
    e.mutable_scalar()->set_value(1);
    AddProgressOf(&batch, i, number);
  }
  return batch;
}

v1::Batch GoodbyesAgainAndAgain(Random&, int bytes, int64_t number) {
  v1::Batch batch = ManySources(*std::make_unique<Random>(1), bytes, number);
  for (v1::Progress& progress : *batch.mutable_progress()) progress.set_finished(number % 2 == 0);
  return batch;
}

// Random content.
v1::Batch ByChance(Random& random, int bytes, int64_t number) {
  v1::Batch batch;
  AddSources(&batch, 4, 4);
  while (batch.ByteSizeLong() < static_cast<size_t>(bytes)) {
    v1::Evidence& e = *batch.add_evidence();
    test::FillByChance(&e, random);
    e.set_source(static_cast<uint32_t>(random() % 4));
    e.set_step(number * 3 + static_cast<int64_t>(random() % 3));
    if (e.site().layer().size() > 512) e.mutable_site()->set_layer("x");
    if (e.site().op().size() > 512 || e.site().op().empty()) e.mutable_site()->set_op("y");
    v1::Batch one;
    *one.mutable_sources() = batch.sources();
    *one.add_evidence() = e;
    if (!CheckReceived(one, {}).ok()) batch.mutable_evidence()->RemoveLast();
    if (batch.evidence_size() > 20000) break;
  }
  for (int i = 0; i < 4; ++i) AddProgressOf(&batch, i, number * 3 + 2);
  return batch;
}

constexpr Kind kOrdinary[] = {{"ordinary scalars", OrdinaryScalars},
                              {"ordinary tensors", OrdinaryTensors},
                              {"ordinary routers", OrdinaryRouters}};

constexpr Kind kHostile[] = {{"many sources", ManySources},
                             {"many columns, all absent", ManyColumns},
                             {"many sets", ManySets},
                             {"claimed worlds", ClaimedWorlds},
                             {"sparse steps", SparseSteps},
                             {"steps that close at once", StepsThatClose},
                             {"roles and their numbers", ManyRoles},
                             {"ever new attempts", EverNewAttempts},
                             {"long names", LongNames},
                             {"declarations", Declarations},
                             {"losses", Losses},
                             {"many words of how far it is", ManyWords},
                             {"late evidence", Late},
                             {"several runs", SeveralRuns},
                             {"goodbyes again and again", GoodbyesAgainAndAgain},
                             {"by chance", ByChance}};

// Returns the highest cost among some consecutive batches and their end.
Cost Dearest(const Kind& kind, unsigned seed, int bytes) {
  Random random(seed);
  Parts parts;
  Cost dearest;
  double all = 0;
  for (int64_t number = 0; number < 6; ++number) {
    const v1::Batch batch = kind.make(random, bytes, number);
    if (number == 0) {
      v1::Hello hello;
      hello.set_stream_id(1);
      *hello.mutable_sources() = batch.sources();
      parts.Hello(hello);
    }
    const Cost cost = parts.Take(batch);
    all += cost.bytes;
    if (cost.refused && number == 0) dearest.why = cost.why;
    if (number == 0) {
      dearest.bytes = cost.bytes;
    }
    // Per byte, so that small ones count too; a fixed part is allowed per message.
    dearest.seconds = std::max(
        dearest.seconds, cost.seconds * dearest.bytes / std::max(cost.bytes, dearest.bytes / 8));
    dearest.heap =
        std::max(dearest.heap, cost.heap * dearest.bytes / std::max(cost.bytes, dearest.bytes / 8));
  }
  const Cost look = parts.Look(), end = parts.End();
  dearest.seconds = std::max({dearest.seconds, look.seconds, end.seconds * dearest.bytes / all});
  return dearest;
}

// Returns the lowest cost of some tries, because other processes may use the machine.
Cost Measure(const Kind& kind, unsigned seed, int bytes, int tries) {
  Cost least = Dearest(kind, seed, bytes);
  for (int i = 1; i < tries; ++i) {
    const Cost again = Dearest(kind, seed, bytes);
    least.seconds = std::min(least.seconds, again.seconds);
    least.heap = std::min(least.heap, again.heap);
  }
  return least;
}

constexpr double kSlack = 0.003;      // seconds per message of any size
constexpr double kTimesOrdinary = 6;  // per byte, compared with the most expensive ordinary kind
// For a batch four times as large; a product costs 16 times. Sparse steps cost 11: if there are few
// steps, few close at the same time, and closing a step costs more than holding it.
constexpr double kTimesForFour = 12;
constexpr double kHeapTimesOrdinary = 4;
constexpr double kHeapSlack = 1 << 18;

TEST(WorkFuzz, NoByteCostsMuchMoreThanAnOrdinaryOne) {
  const int bytes = test::Rounds(1 << 17, 1 << 20);
  double seconds_a_byte = 0, heap_a_byte = 0;
  for (const Kind& kind : kOrdinary) {
    const Cost cost = Measure(kind, 1, bytes, 3);
    ASSERT_EQ(cost.why, "") << kind.name;
    std::printf("%-28s %8.1f ns, %6.1f bytes kept, a byte\n", kind.name,
                cost.seconds / cost.bytes * 1e9, cost.heap / cost.bytes);
    seconds_a_byte = std::max(seconds_a_byte, cost.seconds / cost.bytes);
    heap_a_byte = std::max(heap_a_byte, cost.heap / cost.bytes);
  }
  heap_a_byte = std::max(heap_a_byte, 4.0);
  for (unsigned seed = 1; seed <= static_cast<unsigned>(test::Rounds(1, 20)); ++seed) {
    for (const Kind& kind : kHostile) {
      Cost cost = Measure(kind, seed, bytes, 1);
      const auto dear = [&] {
        return cost.seconds > kSlack + kTimesOrdinary * seconds_a_byte * cost.bytes;
      };
      if (dear()) cost = Measure(kind, seed, bytes, 3);
      std::printf("%-28s %8.1f ns, %6.1f bytes kept, a byte%s%s\n", kind.name,
                  cost.seconds / cost.bytes * 1e9, cost.heap / cost.bytes,
                  cost.why.empty() ? "" : "; refused: ", cost.why.c_str());
      EXPECT_FALSE(dear()) << kind.name << " (seed " << seed << "): " << cost.seconds * 1e3
                           << " ms for " << cost.bytes << " bytes, where an ordinary byte takes "
                           << seconds_a_byte * 1e9 << " ns";
      EXPECT_LE(cost.heap, kHeapSlack + kHeapTimesOrdinary * heap_a_byte * cost.bytes)
          << kind.name << " (seed " << seed << "): " << cost.heap / cost.bytes
          << " bytes are kept for one, where it is " << heap_a_byte << " for an ordinary one";
      // A product is visible when its factors grow.
      const auto steep = [&](const Cost& small) {
        const double grown = cost.bytes / small.bytes;
        return cost.seconds > kSlack + small.seconds * grown * kTimesForFour / 4;
      };
      Cost small = Measure(kind, seed, bytes / 4, 1);
      if (steep(small)) {
        cost = Measure(kind, seed, bytes, 3);
        small = Measure(kind, seed, bytes / 4, 3);
      }
      EXPECT_FALSE(steep(small)) << kind.name << " (seed " << seed << "): " << cost.seconds * 1e3
                                 << " ms for " << cost.bytes << " bytes, " << small.seconds * 1e3
                                 << " ms for " << small.bytes;
    }
  }
}

}  // namespace
}  // namespace plumbline::server
