// Tests that trees are recovered from the outputs of a black box within the guaranteed number of
// calls.
#include "analysis/sums/fprev.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/analysis/sums/simulated_sum.h"

namespace plumbline::sums {
namespace {

absl::StatusOr<Revealed> Reveal(const Target& target, int trusted_pivots, uint64_t seed = 1) {
  Prober prober(target);
  const auto scale = ChooseScale(&prober, seed);
  if (!scale.ok()) return scale.status();
  if (!scale->masks) return absl::FailedPreconditionError("nothing is lost");
  return RevealTree(&prober, *scale, {seed, trusted_pivots});
}

SumModel ModelOf(SummationTree tree, DType input, DType accumulator, DType output,
                 Kind kind = Kind::kSum) {
  SumModel model = PlainModel(BareTarget(kind, tree.leaves(), input, output), std::move(tree),
                              SumFormatOf(accumulator), true);
  if (model.tree.WidestNode() > 2) model.arithmetic.block = Alignment{24, false};
  return model;
}

struct KnownTree {
  const char* name;
  SummationTree tree;
};

std::vector<KnownTree> KnownTrees(int n) {
  return {{"left fold", LeftFold(n)},        {"right fold", RightFold(n)},
          {"pairwise", Pairwise(n)},         {"8 lanes", Lanes(n, 8)},
          {"32 lanes", Lanes(n, 32)},        {"blocks of 4", BlockChain(n, 4)},
          {"blocks of 8", BlockChain(n, 8)}, {"blocks of 16", BlockChain(n, 16)},
          {"all at once", BlockChain(n, n)}};
}

TEST(FprevTest, KnownTreesOf4096InAtMost25000Calls) {
  for (const KnownTree& known : KnownTrees(4096)) {
    for (const uint64_t seed : {1, 2, 3}) {
      const Target target = QuickTarget(known.tree);
      const auto revealed = Reveal(target, 3, seed);
      ASSERT_TRUE(revealed.ok()) << known.name << ": " << revealed.status();
      EXPECT_EQ(revealed->tree.Hash(), known.tree.Hash()) << known.name;
      EXPECT_LE(revealed->calls, 25'000) << known.name;
      if (seed == 1) std::printf("%s: %ld calls\n", known.name, static_cast<long>(revealed->calls));
    }
  }
}

TEST(FprevTest, EverySizeAndFormat) {
  struct Formats {
    DType input, accumulator, output;
    Kind kind;
  };
  const Formats all[] = {{DType::kF32, DType::kF32, DType::kF32, Kind::kDot},
                         {DType::kF64, DType::kF64, DType::kF64, Kind::kDot},
                         {DType::kF32, DType::kF64, DType::kF32, Kind::kDot},
                         {DType::kBF16, DType::kF32, DType::kF32, Kind::kGemm},
                         {DType::kBF16, DType::kF32, DType::kBF16, Kind::kSum},
                         {DType::kBF16, DType::kBF16, DType::kBF16, Kind::kSum},
                         {DType::kF16, DType::kF32, DType::kF16, Kind::kSum},
                         {DType::kF16, DType::kF16, DType::kF16, Kind::kSum},
                         {DType::kF16, DType::kF16, DType::kF16, Kind::kGemm},
                         {DType::kF16, DType::kF32, DType::kF32, Kind::kGemm}};
  for (const Formats& f : all) {
    for (const int n : {3, 4, 5, 17, 100}) {
      for (const KnownTree& known : KnownTrees(n)) {
        if (std::string(known.name).find("lanes") != std::string::npos && n < 100) continue;
        const auto revealed =
            Reveal(TargetOf(ModelOf(known.tree, f.input, f.accumulator, f.output, f.kind)), 0);
        ASSERT_TRUE(revealed.ok())
            << known.name << " of " << n << " " << DTypeName(f.input) << " in "
            << DTypeName(f.accumulator) << " to " << DTypeName(f.output) << " " << KindName(f.kind)
            << ": " << revealed.status();
        EXPECT_EQ(revealed->tree.Hash(), known.tree.Hash()) << known.name << " of " << n;
      }
    }
  }
}

TEST(FprevTest, RandomTrees) {
  for (int k = 0; k < 60; ++k) {
    const int n = k < 59 ? 3 + 13 * k : 4096;
    const double wide = k % 3 == 0 ? 0 : .2;
    const SummationTree tree = RandomTree(n, wide, static_cast<uint64_t>(k));
    const auto revealed = Reveal(QuickTarget(tree), 0, static_cast<uint64_t>(k));
    ASSERT_TRUE(revealed.ok()) << n << ": " << revealed.status();
    EXPECT_EQ(revealed->tree.Hash(), tree.Hash()) << n;
    EXPECT_EQ(revealed->trusted, 0);
  }
}

TEST(FprevTest, MoreAddendsThanTheFormatCounts) {
  for (const KnownTree& known :
       {KnownTree{"left fold", LeftFold(1500)}, KnownTree{"pairwise", Pairwise(1000)},
        KnownTree{"right fold", RightFold(700)}}) {
    const auto revealed =
        Reveal(TargetOf(ModelOf(known.tree, DType::kBF16, DType::kBF16, DType::kBF16)), 4);
    ASSERT_TRUE(revealed.ok()) << known.name << revealed.status();
    EXPECT_EQ(revealed->tree.Hash(), known.tree.Hash()) << known.name;
    EXPECT_LE(revealed->calls, 16 * 25'000);
  }
}

using Values = absl::Span<const double>;

TEST(FprevTest, RefusesWhatIsNoSum) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  Random random(7);
  const std::function<double(Values, Values)> lies[] = {
      [&](Values, Values) { return nan; },
      [&](Values, Values) { return inf; },
      [&](Values, Values) { return 0.25; },
      [&](Values a, Values) { return a[0]; },
      [&](Values a, Values) { return *std::max_element(a.begin(), a.end()); },
      [&](Values a, Values) { return std::floor(a.size() * random.Uniform()); },
      [&](Values a, Values) {  // adds some addends twice
        float sum = 0;
        for (size_t i = 0; i < a.size(); ++i) sum += static_cast<float>(a[i] * (i % 3 ? 1 : 2));
        return static_cast<double>(sum);
      }};
  int number = 0;
  for (const auto& lie : lies) {
    const auto revealed = Reveal(TargetOf(Kind::kSum, 64, DType::kF32, DType::kF32, lie), 4);
    EXPECT_FALSE(revealed.ok()) << "lie " << number << ": " << TreeInWords(revealed->tree);
    EXPECT_FALSE(revealed.status().message().empty()) << "lie " << number;
    ++number;
  }
}

TEST(FprevTest, StopsAtTheCallLimit) {
  const Target target = TargetOf(ModelOf(Pairwise(256), DType::kF32, DType::kF32, DType::kF32));
  Prober prober(target);
  const auto scale = ChooseScale(&prober, 1);
  ASSERT_TRUE(scale.ok());
  const auto revealed = RevealTree(&prober, *scale, {1, 4, 100});
  EXPECT_TRUE(absl::IsResourceExhausted(revealed.status())) << revealed.status();
}

}  // namespace
}  // namespace plumbline::sums
