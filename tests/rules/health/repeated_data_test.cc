// Tests health/repeated-data and the digests in health/same-data on simulated trainings: innocent
// ones of each kind stay silent, and faults are found. Twenty-five times as many if PLUMB_LONG=1.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/rules/health/trained_data.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::DigestOf;
using testing::MixedRow;
using testing::Reader;
using testing::Rows;
using testing::TrainedRun;
using testing::Verdicts;
using Order = Reader::Order;
using Random = std::mt19937_64;

int Runs() { return std::getenv("PLUMB_LONG") != nullptr ? 500 : 20; }
int64_t Between(Random& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

Verdicts Judge(const TrainedRun& run) {
  return testing::VerdictsOn(run.batches(),
                             {.rules = {"health/repeated-data", "health/same-data"}});
}
int FindingsOf(const TrainedRun& run) {
  const Verdicts verdicts = Judge(run);
  return testing::Findings(verdicts, "health/repeated-data") +
         testing::Findings(verdicts, "health/same-data");
}

Reader AnyReader(Random& random, Order order) {
  Reader reader;
  reader.order = order;
  reader.batch = static_cast<uint64_t>(Between(random, 1, 16));
  reader.size = reader.batch * static_cast<uint64_t>(Between(random, 40, 150)) + random() % 3;
  reader.seed = random() % 100000;
  return reader;
}

// Trains the steps [first, last), step s on the data of step s + shift.
void Train(TrainedRun* run, const Reader& reader, int64_t first, int64_t last, int64_t shift = 0) {
  for (int64_t s = first; s < last; ++s) run->Step(s, reader.At(s + shift));
}
void State(TrainedRun* run, const Reader& reader, int64_t step, double shuffles) {
  run->Loader(step, static_cast<double>(reader.epoch()), 1, shuffles);
}

struct Kind {
  const char* name;
  std::function<TrainedRun(Random&)> make;
};

// Epochs of one process.
TrainedRun Epochs(Random& random, Order order, double shuffles) {
  TrainedRun run(static_cast<uint32_t>(Between(random, 1, 4)));
  const Reader reader = AnyReader(random, order);
  State(&run, reader, 3, shuffles);
  Train(&run, reader, 0, Between(random, 2, 4) * reader.epoch());
  return run;
}

// A resume at `resume`, in which step s has the data of step s + shift. `lost`: steps of the
// process before that were trained after its checkpoint.
TrainedRun Resume(const Reader& reader, int64_t resume, int64_t lost, int64_t shift,
                  double shuffles, bool known, Random& random) {
  TrainedRun run(static_cast<uint32_t>(Between(random, 1, 3)));
  if (known) State(&run, reader, 3, shuffles);
  Train(&run, reader, 0, resume + lost);
  run.Attempt();
  if (known) State(&run, reader, resume + 3, shuffles);
  Train(&run, reader, resume, resume + Between(random, 12, 120), shift);
  return run;
}

int64_t WithinEpoch(Random& random, const Reader& reader, int64_t epochs) {
  return Between(random, 0, epochs - 1) * reader.epoch() + Between(random, 20, reader.epoch() - 6);
}

TrainedRun RepeatedRollouts(Random& random, bool shuffled) {
  TrainedRun run;
  run.Loader(3, shuffled ? 8 : NAN, 1, shuffled ? 1 : NAN);
  const int64_t batches = Between(random, 1, 64), epochs = Between(random, 2, 6);
  int64_t step = 0;
  for (uint64_t rollout = 0; rollout < 6; ++rollout) {
    Reader reader{.order = shuffled ? Order::kShuffled : Order::kSequential,
                  .size = static_cast<uint64_t>(batches) * 8,
                  .seed = random(),
                  .first_row = rollout << 32};
    for (int64_t i = 0; i < batches * epochs; ++i) run.Step(step++, reader.At(i));
  }
  return run;
}

// Models that are trained one after the other in one process, with one seed.
TrainedRun Sweep(Random& random) {
  TrainedRun run;
  const Reader reader = AnyReader(random, Order::kShuffled);
  State(&run, reader, 3, 1);
  const int64_t steps = Between(random, 35, 300);
  for (int64_t s = 0; s < 3 * steps; ++s) {
    if (s % steps == 0) run.Fact("batch_digest/begins", s, 1);
    run.Step(s, reader.At(s % steps));
  }
  return run;
}

TrainedRun Scaled(Random& random, bool constant) {  // one batch several times within each step
  TrainedRun run;
  const Reader reader = AnyReader(random, Order::kShuffled);
  const auto times = static_cast<uint64_t>(Between(random, 1, 8));
  for (int64_t s = 0; s < 200; ++s) run.Step(s, times * DigestOf(reader.At(constant ? 0 : s)));
  return run;
}

TrainedRun WithEmptyBatches(Random& random) {
  TrainedRun run;
  const Reader reader = AnyReader(random, Order::kShuffled);
  const uint64_t padding = random() % 3 == 0 ? 0 : random();
  State(&run, reader, 3, 1);
  for (int64_t s = 0; s < 3 * reader.epoch(); ++s)
    run.Step(s, random() % 4 == 0 ? padding : DigestOf(reader.At(s)));
  return run;
}

TrainedRun Curriculum(Random& random) {  // each stage begins with the data of the one before
  TrainedRun run;
  Reader reader = AnyReader(random, Order::kSequential);
  run.Loader(3, static_cast<double>(reader.epoch()), 1, random() % 2 == 0 ? 0 : NAN);
  int64_t step = 0;
  for (int stage = 1; stage <= 4; ++stage) {
    for (int64_t i = 0; i < reader.epoch() * stage / 4; ++i) run.Step(step++, reader.At(i));
  }
  return run;
}

TrainedRun MissingRanks(Random& random) {
  TrainedRun run(3);
  const Reader reader = AnyReader(random, Order::kShuffled);
  State(&run, reader, 3, 1);
  for (int64_t s = 0; s < 2 * reader.epoch(); ++s) {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      if (random() % 8 != 0) run.Step(s, MixedRow(DigestOf(reader.At(s)) + rank), rank);
    }
  }
  return run;
}

TrainedRun TensorParallel(Random& random) {  // all ranks read the same rows; no group is stated
  TrainedRun run(4);
  const Reader reader = AnyReader(random, Order::kShuffled);
  for (int64_t s = 0; s < 100; ++s) {
    for (uint32_t rank = 0; rank < 4; ++rank) run.Step(s, DigestOf(reader.At(s)), rank);
  }
  return run;
}

TrainedRun DataParallel(
    Random& random) {  // sometimes two ranks have the same rows, as at an epoch's end
  TrainedRun run(4);
  for (uint32_t rank = 0; rank < 4; ++rank) run.Fact("batch_digest/group", 0, 0, rank);
  for (int64_t s = 0; s < 60; ++s) {
    const uint64_t shared = random();
    for (uint32_t rank = 0; rank < 4; ++rank) run.Step(s, s % 15 == 14 ? shared : random(), rank);
  }
  return run;
}

TrainedRun TinyGroup(Random& random) {  // fewer rows than ranks
  TrainedRun run(4);
  for (uint32_t rank = 0; rank < 4; ++rank) run.Fact("batch_digest/group", 0, 0, rank);
  for (int64_t s = 0; s < 100; ++s) {
    const uint64_t first = random() % 2;
    for (uint32_t rank = 0; rank < 4; ++rank) run.Step(s, MixedRow((first + rank) % 2), rank);
  }
  return run;
}

TrainedRun EqualSeeds(Random& random) {
  TrainedRun run(4);
  const auto one = static_cast<uint32_t>(Between(random, 0, 2));
  const auto other = static_cast<uint32_t>(Between(random, one + 1, 3));
  for (uint32_t rank = 0; rank < 4; ++rank) run.Fact("batch_digest/group", 0, 0, rank);
  const auto steps = Between(random, 16, 60);
  for (int64_t s = 0; s < steps; ++s) {
    const uint64_t shared = random();
    for (uint32_t rank = 0; rank < 4; ++rank)
      run.Step(s, rank == one || rank == other ? shared : random(), rank);
  }
  return run;
}

TrainedRun Workers(Random& random, bool equal) {
  TrainedRun run;
  const auto workers = static_cast<double>(Between(random, 2, 8));
  const Reader reader = AnyReader(random, Order::kShuffled);
  for (int64_t s = 0; s < 200; ++s)
    run.Step(s, reader.At(equal ? s / static_cast<int64_t>(workers) : s));
  run.Fact("batch_digest/workers", 150, workers);
  run.Fact("batch_digest/rounds", 150, 16);
  run.Fact("batch_digest/equal_rounds", 150,
           equal ? 16 : static_cast<double>(Between(random, 0, 15)));
  return run;
}

const std::vector<Kind> kInnocent = {
    {"later epochs have another order", [](Random& r) { return Epochs(r, Order::kShuffled, 1); }},
    {"sampling with replacement", [](Random& r) { return Epochs(r, Order::kReplacement, NAN); }},
    {"a sequential sampler", [](Random& r) { return Epochs(r, Order::kSequential, 0); }},
    {"a fixed order of a stream", [](Random& r) { return Epochs(r, Order::kSequential, NAN); }},
    {"batches by length", [](Random& r) { return Epochs(r, Order::kBuckets, 1); }},
    {"a tiny data set",
     [](Random& r) {
       TrainedRun run;
       Reader reader{.size = 4 + r() % 20, .batch = 1 + r() % 4, .seed = r() % 10000};
       State(&run, reader, 3, 1);
       Train(&run, reader, 0, 300);
       return run;
     }},
    {"a constant batch", [](Random& r) { return Scaled(r, true); }},
    {"one batch several times in a step", [](Random& r) { return Scaled(r, false); }},
    {"batches of padding", WithEmptyBatches},
    {"a curriculum", Curriculum},
    {"rollouts in order", [](Random& r) { return RepeatedRollouts(r, false); }},
    {"shuffled rollouts", [](Random& r) { return RepeatedRollouts(r, true); }},
    {"a sweep", Sweep},
    {"missing ranks", MissingRanks},
    {"tensor parallelism", TensorParallel},
    {"data parallelism", DataParallel},
    {"fewer rows than ranks", TinyGroup},
    {"workers that differ", [](Random& r) { return Workers(r, false); }},
    {"a resume that goes on",
     [](Random& r) {
       const Reader reader = AnyReader(r, Order::kShuffled);
       return Resume(reader, WithinEpoch(r, reader, 3), Between(r, 0, 60), 0, 1, r() % 2 == 0, r);
     }},
    {"a resume of a sequential reader",
     [](Random& r) {
       const Reader reader = AnyReader(r, Order::kSequential);
       return Resume(reader, WithinEpoch(r, reader, 3), Between(r, 0, 60), 0, 0, r() % 2 == 0, r);
     }},
    {"a resume at an epoch's end",
     [](Random& r) {
       const Reader reader = AnyReader(r, r() % 2 == 0 ? Order::kSequential : Order::kSameShuffle);
       const int64_t end = Between(r, 1, 3) * reader.epoch() + Between(r, -1, 1);
       return Resume(reader, end, 0, -end, 0, r() % 2 == 0, r);
     }},
    {"a resume that skips data",
     [](Random& r) {
       const Reader reader = AnyReader(r, Order::kShuffled);
       return Resume(reader, WithinEpoch(r, reader, 2), 60, Between(r, 1, 60), 1, true, r);
     }},
    {"a resume whose loader has read ahead",
     [](Random& r) {
       const Reader reader = AnyReader(r, Order::kShuffled);
       return Resume(reader, WithinEpoch(r, reader, 2), 0, -Between(r, 1, 7), 1, true, r);
     }},
    {"a resume with another batch size",
     [](Random& r) {
       TrainedRun run;
       Reader reader = AnyReader(r, Order::kShuffled);
       State(&run, reader, 3, 1);
       Train(&run, reader, 0, 40);
       run.Attempt();
       reader.batch *= 2;
       Train(&run, reader, 40, 60, -40);
       return run;
     }},
    {"a declared repeat after a resume",
     [](Random& r) {
       const Reader reader = AnyReader(r, Order::kShuffled);
       const int64_t at = WithinEpoch(r, reader, 1);
       TrainedRun run = Resume(reader, at, 30, -at, 1, true, r);
       run.Fact("settings/ignore_data_skip", at, 1);
       return run;
     }},
};

const std::vector<Kind> kGuilty = {
    {"the sampler begins again",
     [](Random& r) {
       const Reader reader = AnyReader(r, r() % 2 == 0 ? Order::kShuffled : Order::kSequential);
       const int64_t at = WithinEpoch(r, reader, 1);
       return Resume(reader, at, 0, -at, 1, true, r);
     }},
    {"the sampler begins again, and steps are lost",
     [](Random& r) {
       const Reader reader = AnyReader(r, Order::kShuffled);
       const int64_t at = WithinEpoch(r, reader, 2);
       return Resume(reader, at, Between(r, 8, 60), -at, 1, false, r);
     }},
    {"the epoch begins again",
     [](Random& r) {
       const Reader reader = AnyReader(r, Order::kShuffled);
       const int64_t at = WithinEpoch(r, reader, 3);
       return Resume(reader, at, 0, -(at % reader.epoch()), 1, true, r);
     }},
    {"epochs of one seed", [](Random& r) { return Epochs(r, Order::kSameShuffle, 1); }},
    {"ranks of one seed", EqualSeeds},
    {"workers of one seed", [](Random& r) { return Workers(r, true); }},
};

TEST(RepeatedData, InnocentTrainingsStaySilent) {
  for (const Kind& kind : kInnocent) {
    Random random(11);
    int found = 0;
    for (int i = 0; i < Runs(); ++i) found += FindingsOf(kind.make(random)) > 0 ? 1 : 0;
    EXPECT_EQ(found, 0) << kind.name;
  }
}

TEST(RepeatedData, FaultsAreFound) {
  for (const Kind& kind : kGuilty) {
    Random random(12);
    int found = 0;
    for (int i = 0; i < Runs(); ++i) found += FindingsOf(kind.make(random)) == 1 ? 1 : 0;
    EXPECT_GE(found, Runs() * 95 / 100) << kind.name;
    RecordProperty(kind.name, found);
  }
}

// The evidence does not show whether an epoch ended at the resume.
TEST(RepeatedData, AnUnknownEpochIsInconclusive) {
  Random random(3);
  const Reader reader = AnyReader(random, Order::kSequential);
  const int64_t at = WithinEpoch(random, reader, 1);
  const Verdicts verdicts = Judge(Resume(reader, at, 0, -at, 1, false, random));
  EXPECT_EQ(testing::Outcome(testing::Only(verdicts, "health/repeated-data")), "epoch-unknown");
}

TEST(RepeatedData, AnOptionDeclaresRepeats) {
  Random random(4);
  const TrainedRun run = Epochs(random, Order::kSameShuffle, 1);
  const Verdicts verdicts = testing::VerdictsOn(
      run.batches(),
      {.rules = {"health/repeated-data"}, .settings = {"health/repeated-data.repeats=declared"}});
  EXPECT_EQ(testing::Findings(verdicts, "health/repeated-data"), 0);
}

// A half that is no whole number is not passed, and does not hide a fault of later steps.
TEST(RepeatedData, PoisonHidesNothing) {
  Random random(5);
  TrainedRun run = Epochs(random, Order::kSameShuffle, 1);
  TrainedRun poisoned = run, alone;
  poisoned.Fact("batch_digest/high", 2, NAN);
  poisoned.Fact("batch_digest/epoch", 2, NAN);
  EXPECT_EQ(FindingsOf(poisoned), 1);
  for (const double value :
       {static_cast<double>(NAN), -1.0, 0.5, 0x1p32, static_cast<double>(INFINITY)}) {
    alone = TrainedRun();
    alone.Fact("batch_digest/high", 0, value);
    alone.Fact("batch_digest/low", 0, 1);
    EXPECT_EQ(testing::Outcome(testing::Only(Judge(alone), "health/repeated-data")), "poisoned");
  }
}

}  // namespace
}  // namespace plumbline::rules
