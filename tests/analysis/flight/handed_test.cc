// Tests patterns that are not a mismatch: the communication library counts elements, or bytes if it
// only moves data.
#include "analysis/flight/handed.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "analysis/flight/frozen.h"

namespace plumbline::flight {
namespace {

struct Call {
  std::string kind = "all_reduce", dtype = "Float", in = "[1024,8]", out = "[1024,8]";
};

// Returns eight ranks at one collective; rank 3 passes `odd`.
Frozen Standing(const Call& most, const Call& odd,
                const std::function<void(uint32_t, v1::FlightRecorder::Operation*)>& change = {}) {
  constexpr uint32_t kRanks = 8;
  std::map<uint32_t, v1::FlightRecorder> recorders;
  std::map<uint32_t, const v1::FlightRecorder*> by_rank;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const Call& call = rank == 3 ? odd : most;
    v1::FlightRecorder& recorder = recorders[rank];
    v1::FlightRecorder::Group& group = *recorder.add_groups();
    group.set_name("0");
    for (uint32_t member = 0; member < kRanks; ++member) group.add_ranks(member);
    v1::FlightRecorder::Operation& op = *recorder.add_operations();
    op.set_name("nccl:" + call.kind);
    op.set_sequence(7);
    op.set_state(v1::FlightRecorder::STATE_STARTED);
    op.set_dtype(call.dtype);
    op.set_input_shape(call.in);
    op.set_output_shape(call.out);
    if (change) change(rank, &op);
  }
  for (const auto& [rank, recorder] : recorders) by_rank[rank] = &recorder;
  return FindFrozen(JoinRecorders(by_rank));
}

std::string List(const std::string& shape, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += (i == 0 ? "" : ",") + shape;
  return out;
}

TEST(Handed, CountsAreReadFromShapes) {
  const auto counts = CountsIn("[1024,8],[3],[],[0,5]");
  ASSERT_TRUE(counts.has_value());
  EXPECT_EQ(counts->tensors, (std::vector<uint64_t>{8192, 3, 1, 0}));
  EXPECT_TRUE(counts->whole);
  const auto cut = CountsIn("[1024,8],[1024,");
  ASSERT_TRUE(cut.has_value());
  EXPECT_FALSE(cut->whole);
  EXPECT_EQ(cut->tensors.size(), 1u);
  EXPECT_FALSE(CountsIn("[-1,8]").has_value());
  EXPECT_FALSE(CountsIn("[9223372036854775807,9223372036854775807]").has_value());
  EXPECT_FALSE(CountsIn("[99999999999999999999]").has_value());
}

// Tests that if the collective has not started on the device of some ranks, these are named. If it
// has not started on most devices, no rank is named.
TEST(Handed, ARankWhoseDeviceHasNotBegun) {
  for (const uint32_t scheduled : {1u, 3u, 4u, 8u}) {
    const Frozen frozen = Standing({"all_reduce"}, {"all_reduce"},
                                   [&](uint32_t rank, v1::FlightRecorder::Operation* op) {
                                     if (rank < scheduled)
                                       op->set_state(v1::FlightRecorder::STATE_SCHEDULED);
                                   });
    const bool named = scheduled < 4;
    EXPECT_EQ(frozen.kind, named ? Frozen::Kind::kNotStarted : Frozen::Kind::kAllAtOne);
    EXPECT_EQ(frozen.ranks.size(), named ? scheduled : 0);
    EXPECT_EQ(frozen.waiting.size(), named ? 8 - scheduled : 8);
  }
}

TEST(Handed, AViewIsNoOtherCall) {
  for (const char* kind : {"all_reduce", "broadcast", "reduce"}) {
    EXPECT_EQ(Standing({kind}, {kind, "Float", "[8192]", "[2,4096]"}).kind, Frozen::Kind::kAllAtOne)
        << kind;
  }
  // One tensor for all, or one per member.
  const Call gathers{"_all_gather_base", "Float", "[8]", "[64]"};
  EXPECT_EQ(Standing(gathers, {"all_gather", "Float", "[4,2]", List("[8]", 8)}).kind,
            Frozen::Kind::kAllAtOne);
  const Call scatters{"_reduce_scatter_base", "Float", "[64]", "[8]"};
  EXPECT_EQ(Standing(scatters, {"reduce_scatter", "Float", List("[8]", 8), "[2,4]"}).kind,
            Frozen::Kind::kAllAtOne);
}

TEST(Handed, AnotherCountIsOne) {
  const Frozen found = Standing({}, {"all_reduce", "Float", "[8191]", "[8191]"});
  EXPECT_EQ(found.kind, Frozen::Kind::kMismatched);
  EXPECT_EQ(found.what, "shape");
  EXPECT_EQ(found.ranks, std::vector<uint32_t>{3});
  EXPECT_EQ(found.minority, "[8191]");
  EXPECT_EQ(found.majority, "[1024,8]");
  // Coalesced: the same total, but another count per call.
  EXPECT_EQ(Standing({"all_reduce", "Float", "[4],[4]", "[4],[4]"},
                     {"all_reduce", "Float", "[3],[5]", "[3],[5]"})
                .kind,
            Frozen::Kind::kMismatched);
}

// Tests that if data are only moved, bytes count; if they are added, the dtypes must be equal.
TEST(Handed, BytesAreWhatIsMoved) {
  const Call floats{"_all_gather_base", "Float", "[8]", "[64]"};
  EXPECT_EQ(Standing(floats, {"_all_gather_base", "Byte", "[32]", "[256]"}).kind,
            Frozen::Kind::kAllAtOne);
  const Frozen narrow = Standing(floats, {"_all_gather_base", "BFloat16", "[8]", "[64]"});
  EXPECT_EQ(narrow.kind, Frozen::Kind::kMismatched);
  EXPECT_EQ(narrow.what, "dtype");
  EXPECT_EQ(narrow.minority, "BFloat16");
  EXPECT_EQ(Standing({}, {"all_reduce", "Int", "[1024,8]", "[1024,8]"}).what, "dtype");
  EXPECT_EQ(Standing({"all_to_all", "Float"}, {"all_to_all", "Int"}).kind, Frozen::Kind::kAllAtOne);
  EXPECT_EQ(Standing({"all_to_all", "Float"}, {"all_to_all", "Half"}).what, "dtype");
}

// Tests lists that were truncated at different places and with uneven parts: unseen entries are no
// evidence.
TEST(Handed, WhatWasCutIsNoDifference) {
  const Call gathers{"all_gather", "Float", "[1024]", List("[1024]", 5) + ",[10"};
  EXPECT_EQ(Standing(gathers, {"all_gather", "Float", "[1024]", List("[32,32]", 3) + ",[32,"}).kind,
            Frozen::Kind::kAllAtOne);
  EXPECT_EQ(Standing(gathers, {"_all_gather_base", "Float", "[1024]", "[8192]"}).kind,
            Frozen::Kind::kAllAtOne);
  const auto last_is_less = [](uint32_t rank, v1::FlightRecorder::Operation* op) {
    if (rank == 7) op->set_input_shape("[1000]");
  };
  EXPECT_EQ(Standing(gathers, gathers, last_is_less).kind, Frozen::Kind::kAllAtOne);
}

}  // namespace
}  // namespace plumbline::flight
