// Tests a slot that changes while a block works: all threads of the block use the value that the
// first thread read.
#include "kernels/core/graph_block.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/device/graph_product.h"
#include "kernels/sample/replay.h"
#include "tests/kernels/device/emulated_block.h"

namespace plumbline {
namespace {

constexpr int kThreads = 7;

// A captured call whose section is in the test's memory.
class GraphBlock : public ::testing::Test {
 protected:
  GraphBlock() {
    work_ = new (memory_.data()) GraphWork;
    Open();
  }
  void Open() { slot_ = {At(), reinterpret_cast<uint64_t>(&tally_), 1, 0, 0, 0}; }
  uint64_t At() const { return reinterpret_cast<uint64_t>(memory_.data()); }
  void Close() { slot_ = GraphSlot{}; }

  alignas(64) std::array<std::byte, 65536> memory_{};
  GraphWork* work_;
  GraphCounts tally_;
  GraphSlot slot_;
  uint64_t section_ = 0;
  uint32_t arrived_ = 0;
  uint64_t reported_ = 0;
  const GraphCall call_{&slot_, &section_, &arrived_, &reported_};
};

// D = A B with these numbers of rows, columns and products.
struct Product {
  std::vector<float> a, b, d;
  ProductPlan plan;

  Product(int64_t rows, int64_t columns, int64_t inner) {
    for (int64_t i = 0; i < rows * inner; ++i) a.push_back(static_cast<float>(i));
    for (int64_t i = 0; i < inner * columns; ++i) b.push_back(static_cast<float>(-i));
    for (int64_t i = 0; i < rows * columns; ++i) d.push_back(static_cast<float>(1000 + i));
    ProductInput in;
    in.a = TensorView::Dense(a.data(), DType::kF32, rows, inner);
    in.b = TensorView::Dense(b.data(), DType::kF32, inner, columns);
    in.d = TensorView::Dense(d.data(), DType::kF32, rows, columns);
    EXPECT_TRUE(CheckProduct(in).ok()) << CheckProduct(in);
    plan = PlanProduct(in, 5, 4, 16);
  }
  std::vector<std::byte> Gathered() const {
    std::vector<std::byte> out(plan.bytes);
    GatherProduct(plan, out.data());
    return out;
  }
};

TEST_F(GraphBlock, OneThreadDecides) {
  BeginReplay(call_);
  uint64_t decided = 1;
  const EmulatedBlock closing{kThreads, [&] { Close(); }};
  EXPECT_EQ(DecideSection(closing, call_, &decided), At()) << "it was open when it was asked for";
  EXPECT_EQ(DecideSection(closing, call_, &decided), 0u);
}

class GraphProductBlock : public GraphBlock {
 protected:
  GraphProductBlock() : product_(40, 30, 20) {
    work_->plan_at = 1024;
    work_->plan_to = 16384;
    std::memcpy(memory_.data() + work_->plan_at, &product_.plan, sizeof(ProductPlan));
    std::memset(static_cast<void*>(&place_), 0x5a, sizeof(place_));  // simulates memory with old
                                                                     // content
  }
  void Gather(const EmulatedBlock& block) {
    for (const uint32_t number : {0, 1}) {
      GatherPlanned(block, call_, kThreads, number, 2, &place_);
    }
  }
  std::vector<std::byte> Written() const {
    const auto* from = memory_.data() + 16384;
    return {from, from + product_.plan.bytes};
  }

  const Product product_;
  PlanPlace place_;
};

TEST_F(GraphProductBlock, AllPartsAreGathered) {
  Gather(EmulatedBlock{kThreads, nullptr});
  EXPECT_EQ(Written(), product_.Gathered());
  EXPECT_EQ(slot_.section, 0u) << "the only section";
  EXPECT_EQ(tally_.replays, 1u);
  EXPECT_EQ(work_->begun, 2u) << "once a block";
  EXPECT_EQ(work_->done, 2u);
}

// The first block reads its whole plan, although its slot was closed meanwhile; the second does
// nothing.
TEST_F(GraphProductBlock, AStepThatClosesMeanwhileLeavesAWholePlan) {
  Gather(EmulatedBlock{kThreads, [&] { Close(); }});
  EXPECT_EQ(std::memcmp(&place_.plan, &product_.plan, sizeof(ProductPlan)), 0);
  const std::vector<std::byte> written = Written(), whole = product_.Gathered();
  for (size_t i = 0; i < written.size(); i += 4) {
    if (written[i] != std::byte{0}) {
      EXPECT_EQ(std::memcmp(&written[i], &whole[i], 4), 0);
    }
  }
}

// If a section is rewritten meanwhile, this has no effect, because the plan's place is read once.
TEST_F(GraphProductBlock, WhereThePlanLiesIsOneThreadsWord) {
  int reported = 0;
  Gather(EmulatedBlock{kThreads, [&] {
                         if (++reported == 1) work_->plan_at = 0;
                       }});
  EXPECT_EQ(std::memcmp(&place_.plan, &product_.plan, sizeof(ProductPlan)), 0);
}

TEST_F(GraphProductBlock, AClosedStepIsLeftAlone) {
  Close();
  Gather(EmulatedBlock{kThreads, nullptr});
  EXPECT_EQ(Written(), std::vector<std::byte>(product_.plan.bytes));
}

// One launch of three blocks over results that are zero between replays. Calls `before(number)`
// before a block reads its slot, `after` when all have measured.
struct OneLaunch {
  static constexpr uint32_t kBlocks = 3;
  std::vector<uint32_t> results = std::vector<uint32_t>(100);

  void Run(const GraphCall& call, const std::function<void(uint32_t)>& before,
           const std::function<void()>& after) {
    uint64_t reported[kBlocks];
    for (const uint32_t number : {1, 0, 2}) {
      before(number);
      ReplayPlace place;
      reported[number] =
          BeginBlock(EmulatedBlock{kThreads, {}}, call, kThreads, number, kBlocks, &place);
      for (size_t i = number; reported[number] != 0 && i < results.size(); i += kBlocks)
        results[i] = 7;
    }
    after();
    for (const uint32_t number : {2, 1, 0}) {
      ReplayPlace place;
      EndBlock(EmulatedBlock{kThreads, {}}, call, kThreads, number, kBlocks, reported[number],
               results.data(), results.size(), &place);
    }
  }
};

class GraphOneLaunch : public GraphBlock {
 protected:
  GraphOneLaunch() { work_->results_at = 4096; }
  std::vector<uint32_t> Left() const {
    std::vector<uint32_t> found(100);
    std::memcpy(found.data(), memory_.data() + 4096, 400);
    return found;
  }
  // The state that the next replay needs.
  void ExpectAtRest() const {
    EXPECT_EQ(launch_.results, std::vector<uint32_t>(100));
    EXPECT_EQ(arrived_, 0u);
    EXPECT_EQ(reported_, 0u);
  }

  OneLaunch launch_;
};

TEST_F(GraphOneLaunch, TheLastBlockLeavesTheResultsAndMovesTheSlot) {
  launch_.Run(
      call_, [](uint32_t) {}, [] {});
  EXPECT_EQ(Left(), std::vector<uint32_t>(100, 7));
  EXPECT_EQ(tally_.replays, 1u);
  EXPECT_EQ(slot_.section, 0u);
  EXPECT_EQ(work_->begun, OneLaunch::kBlocks);
  EXPECT_EQ(work_->done, OneLaunch::kBlocks);
  ExpectAtRest();
  launch_.Run(
      call_, [](uint32_t) {}, [] {});  // more replays than sections: counted
  EXPECT_EQ(tally_.replays, 2u);
  EXPECT_EQ(work_->begun, OneLaunch::kBlocks);
  ExpectAtRest();
}

// A step is opened or closed while the blocks work: no results are written, the begin differs from
// the end, and everything is zero again.
TEST_F(GraphOneLaunch, BlocksThatAreReportedDifferentlyLeaveNothing) {
  const auto nothing = [] {};
  for (const uint32_t until : {0u, 2u, 3u}) {  // number of the block before which it changes
                                               // (blocks run in the order 1, 0, 2); 3: after all
                                               // have measured
    for (const bool closes : {true, false}) {
      SCOPED_TRACE(testing::Message() << (closes ? "closed" : "opened") << " at block " << until);
      *work_ = GraphWork{};
      work_->results_at = 4096;
      tally_ = {};
      Open();
      if (!closes) Close();
      const auto change = [&] { closes ? Close() : Open(); };
      const auto before = [&](uint32_t number) {
        if (number == until) change();
      };
      launch_.Run(call_, before, until == 3 ? std::function<void()>(change) : nothing);
      EXPECT_EQ(Left(), std::vector<uint32_t>(100));
      EXPECT_EQ(tally_.replays, 0u);
      EXPECT_NE(work_->begun, work_->done);
      ExpectAtRest();
    }
  }
}

// Two replays run at once. The blocks of both together reach the count, but not each block once.
TEST_F(GraphOneLaunch, BlocksOfTwoReplaysAreNotOne) {
  EXPECT_FALSE(ReportSection(call_, At(), 0, 3).last);
  EXPECT_FALSE(ReportSection(call_, At(), 0, 3).last);
  const ReplayEnd mixed = ReportSection(call_, At(), 1, 3);
  EXPECT_TRUE(mixed.last);
  EXPECT_FALSE(mixed.agreed);
  for (const uint32_t number : {2, 0}) EXPECT_FALSE(ReportSection(call_, At(), number, 3).last);
  const ReplayEnd whole = ReportSection(call_, At(), 1, 3);
  EXPECT_TRUE(whole.last);
  EXPECT_TRUE(whole.agreed);
}

TEST_F(GraphOneLaunch, AStepThatIsNotDueCostsNoAccessToTheRecord) {
  Close();
  const auto before = memory_;
  launch_.Run(
      call_, [](uint32_t) {}, [] {});
  EXPECT_EQ(std::memcmp(before.data(), memory_.data(), memory_.size()), 0);
  ExpectAtRest();
}

// Copies every element once, wherever blocks and rows end; the last block advances the slot.
TEST_F(GraphBlock, BlocksShareTheRowsAndTheLastMovesTheSlot) {
  std::vector<uint16_t> matrix(40 * 50);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<uint16_t>(i + 1);
  for (const auto& [rows, columns] : {std::pair{1, 1}, {1, 50}, {40, 1}, {13, 7}, {40, 33}}) {
    for (const uint32_t blocks : {1u, 3u, 16u, 20u}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << columns << ", " << blocks << " blocks");
      memory_.fill(std::byte{0});
      work_ = new (memory_.data()) GraphWork;
      Open();
      tally_.replays = 0;
      work_->copies = 2;  // by rows, and by columns
      work_->copy[0] = {matrix.data(), rows, columns, 50, 1, 4096, 2, 0};
      work_->copy[1] = {matrix.data(), columns, rows, 1, 50, 16384, 2, 0};
      for (uint32_t number = blocks; number-- > 0;) {
        EXPECT_EQ(slot_.section, At());
        ReplayPlace place;
        const EmulatedBlock block{kThreads, nullptr};
        const uint64_t reported = BeginBlock(block, call_, kThreads, number, blocks, &place);
        EndBlock(block, call_, kThreads, number, blocks, reported, nullptr, 0, &place);
      }
      EXPECT_EQ(slot_.section, 0u);
      EXPECT_EQ(tally_.replays, 1u);
      EXPECT_EQ(arrived_, 0u) << "as the next replay needs it";
      for (int i = 0; i < rows * columns; ++i) {
        uint16_t by_rows = 0, by_columns = 0;
        std::memcpy(&by_rows, &memory_[4096 + 2 * static_cast<size_t>(i)], 2);
        std::memcpy(&by_columns, &memory_[16384 + 2 * static_cast<size_t>(i)], 2);
        ASSERT_EQ(by_rows, matrix[static_cast<size_t>(i / columns * 50 + i % columns)]) << i;
        ASSERT_EQ(by_columns, matrix[static_cast<size_t>(i % rows * 50 + i / rows)]) << i;
      }
    }
  }
}

// An update's six tensors: the captured section identifies them.
TEST_F(GraphBlock, ElementsOfSeveralTensorsAreGathered) {
  constexpr int64_t kEach = 11;
  std::vector<float> values(6 * 100);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  work_->gathers = 6;
  work_->samples = 6 * kEach;
  work_->gather_at = 1024;
  work_->gathered_at = 16384;
  auto* items = reinterpret_cast<GatherItem*>(memory_.data() + 1024);
  auto* indices = reinterpret_cast<uint64_t*>(items + 6);
  for (int64_t t = 0; t < 6; ++t) {
    items[t] = PlanItem(TensorView::Dense(values.data() + 100 * t, DType::kF32, 100), kEach);
    items[t].first_span = t * kEach;
    items[t].result = static_cast<uint64_t>(t) * 64;
    for (int64_t i = 0; i < kEach; ++i) indices[t * kEach + i] = static_cast<uint64_t>(7 * i + t);
  }
  for (const uint32_t number : {1, 0}) {
    ReplayPlace place;
    BeginBlock(EmulatedBlock{kThreads, nullptr}, call_, kThreads, number, 2, &place);
  }
  for (size_t t = 0; t < 6; ++t) {
    for (size_t i = 0; i < kEach; ++i) {
      float found = 0;
      std::memcpy(&found, &memory_[16384 + 64 * t + 4 * i], 4);
      EXPECT_EQ(found, static_cast<float>(100 * t + 7 * i + t));
    }
  }
}

}  // namespace
}  // namespace plumbline
