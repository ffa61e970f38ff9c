// The cost of capsule parts must be proportional to their bytes, as in work_fuzz_test for batches.
// A keeper with a given number of capsules gets parts that no honest rank sends. Neither time nor
// memory may depend on how many capsules are known, and queued or stored parts are limited.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <ctime>
#include <future>
#include <random>

#include "base/crc32c.h"
#include "server/capsules/capsule_keeper.h"
#include "tests/server/ingest/message_fuzz.h"
#include "tests/support/batches.h"
#include "tests/support/files.h"

namespace plumbline::server {
namespace {

using Random = std::mt19937;

// Returns the CPU time of all threads, because the keeper has its own.
double CpuSeconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

class Line : public Connection {
 public:
  void OnHeld(uint64_t, bool) override {}
  void OnRefused(uint64_t, const std::string&) override {}
  void OnSuperseded() override {}
  void Resume() override {}
  const void* call() const override { return this; }
  void OnDirective(const v1::Directive& directive) override {
    if (directive.capsule().release()) return;
    std::lock_guard lock(mutex_);
    orders_[directive.capsule().capsule()] = directive.capsule();
  }
  std::vector<v1::SendCapsule> orders() const {
    std::lock_guard lock(mutex_);
    std::vector<v1::SendCapsule> list;
    for (const auto& [id, order] : orders_) list.push_back(order);
    return list;
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, v1::SendCapsule> orders_;
};

constexpr uint64_t kStream = 7;

// A keeper that waits for a rank of each of `capsules` capsules, each of a separate run.
class Keeper {
 public:
  explicit Keeper(int capsules, size_t queue_bytes = 64u << 20)
      : keeper_(
            CapsuleOptions{.directory = folder_.File("capsules"),
                           .level = v1::LEVEL_UNSPECIFIED,
                           .grace = std::chrono::seconds(600),
                           .silence = std::chrono::seconds(600),
                           .queue_bytes = queue_bytes},
            [](const std::string&) {
              return RunKnown{3, {}};
            },
            &counters_) {
    EXPECT_TRUE(keeper_.Start().ok());
    v1::Hello hello;
    hello.set_stream_id(kStream);
    hello.set_directives(true);
    for (int i = 0; i < capsules; ++i)
      *hello.add_sources() = test::SourceOf("run" + std::to_string(i));
    keeper_.Joined(kStream, 1, line_, hello);
    for (int i = 0; i < capsules; ++i) Query(i);
    orders_ = line_->orders();
    EXPECT_EQ(orders_.size(), static_cast<size_t>(capsules));
  }

  // Requests a capsule; returns once everything sent before has been handled.
  v1::CapsuleInfo Query(int capsule) {
    v1::Finding finding;
    finding.set_rule("causality/moe-future-leak");
    finding.set_level(v1::LEVEL_ERROR);
    finding.mutable_site()->set_run("run" + std::to_string(capsule));
    finding.mutable_site()->set_layer("layers.0");
    finding.mutable_site()->set_op("router");
    finding.mutable_site()->add_ranks(0);
    finding.set_fingerprint("f" + std::to_string(capsule));
    std::promise<v1::CapsuleInfo> answer;
    keeper_.Request(finding, false, [&](absl::StatusOr<v1::CapsuleInfo> info) {
      EXPECT_TRUE(info.ok()) << info.status();
      answer.set_value(info.ok() ? *info : v1::CapsuleInfo());
    });
    return answer.get_future().get();
  }

  const v1::SendCapsule& order(size_t i) const { return orders_[i % orders_.size()]; }
  size_t size() const { return orders_.size(); }
  void Send(const v1::CapsulePart& part) { keeper_.OnPart(kStream, part); }
  uint64_t dropped() const { return counters_.capsule_parts_dropped; }
  CapsuleKeeper& keeper() { return keeper_; }

 private:
  test::TempFolder folder_;
  Counters counters_;
  std::shared_ptr<Line> line_ = std::make_shared<Line>();
  CapsuleKeeper keeper_;
  std::vector<v1::SendCapsule> orders_;
};

v1::CapsulePart Part(const v1::SendCapsule& order, uint64_t offset, size_t size, uint64_t total) {
  v1::CapsulePart part;
  part.set_stream_id(kStream);
  part.set_capsule(order.capsule());
  part.set_step(order.step());
  part.set_offset(offset);
  part.set_total(total);
  part.set_data(std::string(size, 'x'));
  part.set_crc32c(Crc32c(part.data().data(), part.data().size()));
  return part;
}

struct Kind {
  const char* name;
  v1::CapsulePart (*make)(Random& random, const Keeper& keeper, size_t number);
};

constexpr uint64_t kTotal = 4 << 20;

v1::CapsulePart OfNoCapsule(Random& random, const Keeper& keeper, size_t number) {
  v1::CapsulePart part = Part(keeper.order(number), 0, 1, kTotal);
  part.set_capsule(random());
  return part;
}
v1::CapsulePart OfAnotherStep(Random&, const Keeper& keeper, size_t number) {
  v1::CapsulePart part = Part(keeper.order(number), 0, 1, kTotal);
  part.set_step(part.step() + 1);
  return part;
}
v1::CapsulePart FromNowhere(Random& random, const Keeper& keeper, size_t number) {
  return Part(keeper.order(number), 1 + random() % kTotal, 1, kTotal);
}
v1::CapsulePart Spoilt(Random&, const Keeper& keeper, size_t number) {
  v1::CapsulePart part = Part(keeper.order(number), 0, 100, kTotal);
  part.set_crc32c(part.crc32c() + 1);
  return part;
}
v1::CapsulePart ByteByByte(Random&, const Keeper& keeper, size_t number) {
  return Part(keeper.order(0), number, 1, kTotal);
}
v1::CapsulePart LongWords(Random&, const Keeper& keeper, size_t number) {
  v1::CapsulePart part;
  part.set_capsule(keeper.order(number).capsule());
  part.set_step(keeper.order(number).step());
  part.set_error("refused: " + std::string(16 << 10, 'e'));
  return part;
}
v1::CapsulePart LongDigests(Random&, const Keeper& keeper, size_t number) {
  v1::CapsulePart part = Part(keeper.order(number), 0, 1, kTotal);
  part.set_sha256(std::string(16 << 10, 's'));
  return part;
}
v1::CapsulePart ByChance(Random& random, const Keeper& keeper, size_t number) {
  v1::CapsulePart part;
  test::FillByChance(&part, random);
  if (random() % 2 == 0) part.set_capsule(keeper.order(number).capsule());
  if (random() % 2 == 0) part.set_step(keeper.order(number).step());
  return part;
}

constexpr Kind kHostile[] = {{"of no capsule", OfNoCapsule}, {"of another step", OfAnotherStep},
                             {"from nowhere", FromNowhere},  {"spoilt", Spoilt},
                             {"byte by byte", ByteByByte},   {"long words", LongWords},
                             {"long digests", LongDigests},  {"by chance", ByChance}};

struct Cost {
  double first_seconds = 0;  // for a part of each capsule: one may end it, which is written to disk
  double first_bytes = 0;
  double seconds = 0;  // for the parts after these
  double heap = 0;
  double bytes = 0;
};

Cost Measure(const Kind& kind, int capsules, unsigned seed, size_t parts) {
  Keeper keeper(capsules);
  Random random(seed);
  std::vector<v1::CapsulePart> list;
  Cost cost;
  for (size_t i = 0; i < static_cast<size_t>(capsules); ++i) {
    const v1::CapsulePart first = kind.make(random, keeper, i);
    cost.first_bytes += static_cast<double>(first.ByteSizeLong());
    const double start = CpuSeconds();
    keeper.Send(first);
    cost.first_seconds += CpuSeconds() - start;
  }
  const double settling = CpuSeconds();
  keeper.Query(0);
  cost.first_seconds += CpuSeconds() - settling;
  for (size_t i = 0; i < parts; ++i) {
    list.push_back(kind.make(random, keeper, i));
    cost.bytes += static_cast<double>(list.back().ByteSizeLong());
  }
  const double heap = HeapBytes(), start = CpuSeconds();
  for (const v1::CapsulePart& part : list) keeper.Send(part);
  keeper.Query(0);
  cost.seconds = CpuSeconds() - start;
  cost.heap = HeapBytes() - heap;
  return cost;
}

constexpr double kPart = 500e-6;         // seconds per part of any size: some are written to the
                                         // disk
constexpr double kCapsule = 1e-3;        // seconds per part that ends a capsule
constexpr double kSecondsAByte = 50e-9;  // per byte of an ordinary batch
constexpr double kSlack = 0.02;
constexpr double kHeapSlack = 1 << 20;
constexpr double kHeapAByte = 0.25;  // parts are written or skipped, not stored in memory

TEST(CapsuleWork, NoPartCostsMoreThanItsBytesHoweverManyCapsulesThereAre) {
  const auto parts = static_cast<size_t>(test::Rounds(2000, 20000));
  for (unsigned seed = 1; seed <= static_cast<unsigned>(test::Rounds(1, 10)); ++seed) {
    for (const Kind& kind : kHostile) {
      Cost few = Measure(kind, 20, seed, parts), many = Measure(kind, 1000, seed, parts);
      // A part of one of many open capsules may cost the disk as much as a first part. Code that
      // searches all capsules for each part would cost twice as much: with every first part it
      // would search half of them on average.
      const double firsts = static_cast<double>(parts) / 1000;
      const auto steep = [&] {
        return many.seconds > kSlack + 3 * few.seconds + firsts * many.first_seconds;
      };
      for (int again = 0; again < 3 && steep(); ++again) {  // other processes may use the machine
        many.seconds = std::min(many.seconds, Measure(kind, 1000, seed, parts).seconds);
        few.seconds = std::max(few.seconds, Measure(kind, 20, seed, parts).seconds);
      }
      std::printf("%-18s %8.2f us a part, %6.1f ns a byte, %6.2f bytes kept a byte\n", kind.name,
                  many.seconds / static_cast<double>(parts) * 1e6, many.seconds / many.bytes * 1e9,
                  many.heap / many.bytes);
      EXPECT_FALSE(steep()) << kind.name << " (seed " << seed << "): " << many.seconds * 1e3
                            << " ms of 1000 capsules, " << few.seconds * 1e3 << " ms of 20";
      EXPECT_LE(many.seconds,
                kSlack + kPart * static_cast<double>(parts) + kSecondsAByte * many.bytes)
          << kind.name << " (seed " << seed << ")";
      EXPECT_LE(many.first_seconds, kSlack + kCapsule * 1000 + kSecondsAByte * many.first_bytes)
          << kind.name << " (seed " << seed << ")";
      EXPECT_LE(many.heap, kHeapSlack + kHeapAByte * many.bytes)
          << kind.name << " (seed " << seed << ")";
    }
  }
}

// The queue of the keeper's thread has a limit, for any content that makes a part large.
TEST(CapsuleWork, PartsThatWaitHaveABoundWhateverTheyState) {
  constexpr size_t kQueue = 1 << 20;
  for (const Kind& kind : {Kind{"long words", LongWords}, Kind{"long digests", LongDigests}}) {
    Keeper keeper(2, kQueue);
    std::promise<void> held, go_on;
    v1::Finding finding;
    finding.set_fingerprint("f0");
    keeper.keeper().Request(finding, false, [&](const absl::StatusOr<v1::CapsuleInfo>&) {
      held.set_value();
      go_on.get_future().wait();
    });
    held.get_future().wait();
    Random random(1);
    const double heap = HeapBytes();
    for (size_t i = 0; i < 1000; ++i) keeper.Send(kind.make(random, keeper, i));  // 16 MB
    const double grown = HeapBytes() - heap;
    const uint64_t dropped = keeper.dropped();
    go_on.set_value();
    keeper.Query(0);
    EXPECT_GT(dropped, 900u) << kind.name;
    EXPECT_LT(grown, 3.0 * kQueue) << kind.name;
  }
}

}  // namespace
}  // namespace plumbline::server
